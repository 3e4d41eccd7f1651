"""partc.UpdateState → TensorScatter on the buffer of the state."""

from __future__ import annotations

from partc.errors import InternalError
from partc.ir.graph import Node, State
from targets.rewrite import Rewriter


def lower_update_state(node: Node, r: Rewriter) -> bool:
    """Lower `UpdateState(state, new, position) -> full` to `TensorScatter(state, new, position)`.

    TensorScatter (ONNX 24, mode `linear`) writes `new` [batch, heads, sequence, d] to rows position[b]… of
    axis -2 of its first input and returns the whole. The engine binds that input and the output to one
    buffer; onnxruntime's kernel then writes the new rows alone.
    """
    state = node.inputs[0]
    if not isinstance(state, State):
        raise InternalError("UpdateState works on a state alone", where=node.place)
    r.name_state_output(node.outputs[0], state)
    r.emit("TensorScatter", node.inputs, node.outputs, {"axis": -2, "mode": "linear"}, node.scope)
    return True
