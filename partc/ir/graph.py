"""The graph IR, on one screen.

A `Module` is what passes work on: a graph and what the passes found out about it so far.
A `Graph` is nodes in topological order. A node reads and makes values; operators are ONNX operators
(`MatMul`) and those of a domain (`partc.Attention`, `com.microsoft.GroupQueryAttention`).
What is not made by a node is an input, a weight (a reference into a checkpoint), a constant or a state
(a pre-allocated buffer that lives from step to step, such as a KV cache).

References are objects; names are only for people and for the text form (`partc.ir.text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from partc.format.dims import Dim, Shape, element_count
from partc.format.plan import PlanFile
from partc.format.program import Program, Run
from partc.format.state_kinds import USUAL, StateKind
from partc.format.tasks import generates
from partc.ir.quantization import Quantization
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array, WeightExpr

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array

STEP_INPUTS = ("position", "length", "index")
"""Graph inputs that exist on every device: `position` (valid tokens in the cache, i64[batch]), `length` (valid new
tokens, i64[batch]) and `index` (0, 1, … sequence - 1, i64[sequence])."""


@dataclass(eq=False)
class Value:
    """A tensor that a node makes or that the graph is given."""

    name: str
    dtype: str | None = None
    """Short name of the element type (`f32`), None until inferred."""
    shape: Shape | None = None
    """Sizes, None until inferred."""
    producer: Node | None = field(default=None, repr=False)
    origin: str | None = field(default=None, repr=False, kw_only=True)
    """What it is in the original, whatever it is called: the name of a tensor of an ONNX file, or the text of a
    computation of the model's code (`partc.frontend.trace.statements`). None where a pass made it. Not in texts."""

    def bytes(self, bindings: Mapping[str, int]) -> int:
        """Size in bytes when symbols have these values; the value must have been inferred."""
        assert self.dtype is not None
        return self.elements(bindings) * BY_SHORT[self.dtype].bytes

    def elements(self, bindings: Mapping[str, int]) -> int:
        """Number of elements when symbols have these values; the value must have been inferred."""
        assert self.shape is not None
        return element_count(self.shape, bindings)


@dataclass(eq=False)
class Input(Value):
    """A tensor that a request brings, or a step input."""

    @property
    def is_step(self) -> bool:
        """Whether every device has it without a message."""
        return self.name in STEP_INPUTS


@dataclass(eq=False)
class Weight(Value):
    """A tensor of the checkpoint, by reference."""

    source: WeightExpr | None = None


@dataclass(eq=False)
class Constant(Value):
    """A small tensor that stands in the IR with its values."""

    array: Array | None = None


@dataclass(eq=False)
class State(Value):
    """A buffer that lives from step to step, a KV cache `[batch, heads, max_sequence, head_dim]` for one."""

    kind: StateKind = USUAL
    """`rows`: a step writes rows at `position`; `whole`: a step rewrites all of it."""


@dataclass(eq=False)
class Node:
    """One operation."""

    op: str
    """ONNX operator, with its domain before it where it has one: `Add`, `partc.Attention`."""
    inputs: list[Value | None]
    """Operands; None stands for an optional one that is left out."""
    outputs: list[Value]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    scope: str = ""
    """Its place in the source model: `model.layers.0.self_attn`."""

    def __post_init__(self) -> None:
        for output in self.outputs:
            output.producer = self

    @property
    def name(self) -> str:
        """The name of its first output: what messages call it."""
        return self.outputs[0].name

    @property
    def place(self) -> str:
        """The node in messages: `node NAME (OPERATOR) @ SCOPE`."""
        return f"node {self.name} ({self.op})" + (f" @ {self.scope}" if self.scope else "")

    @property
    def operands(self) -> Iterator[Value]:
        """The inputs that are there."""
        return (value for value in self.inputs if value is not None)

    def operand(self, place: int) -> Value:
        """An input that must be there."""
        value = self.inputs[place]
        assert value is not None
        return value


@dataclass(eq=False)
class Graph:
    """Nodes in topological order between inputs and outputs; weights, constants and states are found by use."""

    name: str
    inputs: list[Input]
    outputs: list[Value]
    nodes: list[Node]
    opset: int = 20
    """Version of the standard ONNX operators."""

    def consumers(self) -> dict[Value, list[Node]]:
        """For every value the nodes that read it, in order; O(edges)."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.operands):
                users.setdefault(value, []).append(node)
        return users

    def leaves(self) -> list[Value]:
        """Weights, constants and states in the order of their first use."""
        found = (v for node in self.nodes for v in node.operands if isinstance(v, Weight | Constant | State))
        outputs = (v for v in self.outputs if isinstance(v, Weight | Constant | State))
        return list(dict.fromkeys([*found, *outputs]))

    def weights(self) -> list[Weight]:
        """The weights in the order of their first use."""
        return [value for value in self.leaves() if isinstance(value, Weight)]

    def states(self) -> list[State]:
        """The states in the order of their first use."""
        return [value for value in self.leaves() if isinstance(value, State)]

    def values(self) -> list[Value]:
        """Every value: inputs, leaves, then what nodes make."""
        made = (output for node in self.nodes for output in node.outputs)
        return list(dict.fromkeys([*self.inputs, *self.leaves(), *made]))

    def replace_uses(self, replacement: Mapping[Value, Value]) -> None:
        """Let every reader of a key read its value instead; chains are followed; O(edges)."""

        def final(value: Value) -> Value:
            while value in replacement:
                value = replacement[value]
            return value

        for node in self.nodes:
            node.inputs = [None if value is None else final(value) for value in node.inputs]
        self.outputs = [final(value) for value in self.outputs]


@dataclass(frozen=True)
class ModelInfo:
    """Facts about the model besides its graph; the header of the text form."""

    name: str
    task: str
    """One of `partc.format.tasks.TASKS`."""
    folder: str = "."
    """The folder of the weight files; weight references are relative to it."""
    random: Mapping[str, Any] | None = None
    """`{config, seed}` of a model with random weights; None where the folder has a checkpoint."""
    tokenizer: str | None = None
    """The folder of the tokenizer of a model with random weights; others have theirs in `folder`."""
    dtype: str = "f32"
    quantize: Quantization | None = None
    """Precision that `quantize-weights` gives the weights; None: they keep theirs."""
    max_sequence: int = 512
    max_batch: int = 1
    max_requests: int = 4
    prompt: int = 32
    """Tokens of the prompt that the plan is best for."""
    generate: int = 96
    """Tokens of the answer that the plan is best for."""
    drafted: float = 0.0
    """Share of the answer's tokens that come true from a guess, for which the plan is best."""
    batch: int | None = None
    """Sequences of a request that the plan is best for; None: one."""
    batches: tuple[int, ...] = ()
    """Batches of which the planner chooses one, as max_batch and as the one that the plan is best for; until then
    max_batch is the largest. Empty: max_batch is given."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """Largest value of every symbol in the graph."""
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    start_tokens: tuple[int, ...] = ()
    """Tokens that an answer begins behind where a source is read before; empty: it begins behind its prompt."""
    placeholder_token: int | None = None
    """Token in whose place a row of features of a picture or of a sound goes; None: the model reads none."""
    placeholders: int = 0
    """Rows of features of one picture or sound, so tokens of a prompt that it takes."""
    picture_size: tuple[int, int] | None = None
    """Height and width to which pictures are brought before the preprocessor; None: it does so itself."""
    labels: tuple[str, ...] | None = None
    drafts: bool = True
    """Whether steps may take guessed tokens."""
    uniform_positions: bool = False
    """All sequences of a batch must have the same length: the model has one position for all of them."""

    @property
    def has_states(self) -> bool:
        """Whether the model runs in two phases, prefill and decode."""
        return generates(self.task)


@dataclass(eq=False)
class Submodule:
    """A topological interval of nodes (LinguaLinked Eq. 2)."""

    index: int
    nodes: list[Node]

    @property
    def has_weights(self) -> bool:
        """Whether a node reads one."""
        return any(isinstance(value, Weight) for node in self.nodes for value in node.operands)


@dataclass(frozen=True)
class PhaseCost:
    """The costs of one sub-module in one phase (prefill or decode) at the workload's sizes."""

    flops: int
    """Floating-point operations of one step."""
    read_bytes: int
    """Bytes of weights, states and activations that one step moves."""
    peak_bytes: int
    """Largest sum of live activations at any node."""
    crossing_bytes: int = 0
    """Bytes of all values that cross the cut before this sub-module, whoever reads them."""


@dataclass(frozen=True)
class SubmoduleProfile:
    """Sizes and costs of one sub-module."""

    weight_bytes: int
    state_bytes: int
    """All caches of the sub-module for max_requests × max_batch × max_sequence."""
    phases: Mapping[str, PhaseCost]
    shared: Mapping[str, int] = field(default_factory=dict)
    """Weights that other sub-modules use too (tied embeddings): name → bytes, counted once a device."""
    half_bytes: int = 0
    """Bytes of all its weights in half precision, shared ones too; without kernels for it, engines need twice that."""


@dataclass(eq=False)
class Part:
    """The part of one device: a graph for each piece on its disk, and a program per phase."""

    device: str
    graphs: list[Graph]
    """The graphs in the order of a step. Those that no program of `programs` runs are copies, for losses and moves."""
    programs: dict[str, Program]
    """Phase → program; empty ones where the device is idle until another one is lost."""
    target: str = "null"
    without: dict[str, dict[str, Program]] = field(default_factory=dict)
    """Lost device → phase → the program after its loss; none where this device is idle then."""

    @property
    def running(self) -> list[Graph]:
        """The graphs that the programs run."""
        run = {item.submodule for items in self.programs.values() for item in items if isinstance(item, Run)}
        return [graph for graph in self.graphs if graph.name in run]


DependencyMap = dict[tuple[int, int], list[Value]]
"""(i, j) → values made in sub-module i and read in sub-module j."""


@dataclass(eq=False)
class Module:
    """A graph and what passes have found out about it so far; None means: not yet."""

    info: ModelInfo
    graph: Graph
    candidates: list[Node] | None = None
    """Nodes before which the graph may be cut (Eq. 1), set by `find-cuts`."""
    submodules: list[Submodule] | None = None
    """Set by `form-submodules`, merged by `coarsen-submodules`. Nodes before the first one are shared: they depend
    on step inputs and constants alone (rotary tables, masks), so every device computes them and nothing is sent."""
    sdm: DependencyMap | None = None
    """Sequential dependencies (Eq. 3), set by `map-dependencies`."""
    rdm: DependencyMap | None = None
    """Residual dependencies (Eq. 4), set by `map-dependencies`."""
    profile: list[SubmoduleProfile] | None = None
    """Set by `profile-submodules`, one entry a sub-module."""
    plan: PlanFile | None = None
    """Set by `partition-graph`."""
    parts: list[Part] | None = None
    """Set by `split-graph`, rewritten by `lower-target`."""


def dims_of(graph: Graph) -> list[Dim]:
    """Every size of every value of the graph."""
    return [dim for value in graph.values() for dim in value.shape or ()]
