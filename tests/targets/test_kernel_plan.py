"""Lowered Relax as a kernel plan: calls in order, tensors in one arena, and what no plan can say."""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes, which mypy cannot know.

from __future__ import annotations

import random
from typing import Any

import pytest

from partc.errors import InternalError
from partc.format.kernel_plan import KernelPlan, Place
from tests.targets.test_tvm_operators import CASES, module_of_cases

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

from tvm import relax  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

from targets.tvm.kernel_plan import Life, lay_out, plan_of  # noqa: E402
from targets.tvm.machine import machine_of  # noqa: E402
from targets.tvm.pipeline import processor_pipeline  # noqa: E402

VECTOR = relax.TensorType([8], "float32")


def planned(module: Any, *functions: str) -> KernelPlan:
    with machine_of("x86_64", "", (), "cpu", "sm_87").target():
        lowered = processor_pipeline()(module)
    return plan_of(lowered, functions or ["main"])[0]


def put(through_view: bool) -> Any:
    """state[0] = new[0], directly or through a view of the same memory."""

    @T.prim_func(private=True, s_tir=True)
    def directly(state: T.Buffer((8,), "float32"), new: T.Buffer((8,), "float32")):
        state[0] = new[0]

    @T.prim_func(private=True, s_tir=True)
    def by_view(state: T.Buffer((8,), "float32"), new: T.Buffer((8,), "float32")):
        bits = T.decl_buffer((8,), "int32", data=state.data)
        bits[0] = T.reinterpret("int32", new[0])

    return (by_view if through_view else directly).with_attr("op_pattern", 8)


def written(builder: Any, x: Any, name: str = "main", parameters: Any = None) -> None:
    """A function that returns x."""
    with builder.function(name, parameters or [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([x]))
        builder.emit_func_output(result)


def test_functions_are_written_out_and_views_take_nothing() -> None:
    builder = relax.BlockBuilder()
    y = relax.Var("y", VECTOR)
    with builder.function("inner", [y]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.nn.softmax(relax.op.reshape(y, (2, 4))))
            result = builder.emit_output(relax.op.reshape(doubled, (8,)))
        inner = builder.emit_func_output(result)
    x = relax.Var("x", VECTOR)
    with builder.function("main", [x]):
        with builder.dataflow():
            once = builder.emit(relax.Call(inner, [x]))
            twice = builder.emit(relax.Call(inner, [once]))
            result = builder.emit_output(relax.Tuple([twice]))
        builder.emit_func_output(result)
    function = planned(builder.finalize()).functions["main"]
    first, second = function.calls
    assert first.kernel == second.kernel
    assert [first.arguments[0], second.arguments[0]] == [Place("parameter", 0), first.arguments[1]]
    (output,) = function.outputs
    assert (output.shape, output.place) == ((8,), second.arguments[1])
    assert function.arena_bytes == 128, "both are needed at the second call"


@pytest.mark.parametrize("through_view", [False, True])
def test_a_state_is_changed_where_it_lies(through_view: bool) -> None:
    builder = relax.BlockBuilder()
    state, new = relax.Var("state", VECTOR), relax.Var("new", VECTOR)
    kernel = builder.add_func(put(through_view), "put")
    with builder.function("main", [state, new]):
        with builder.dataflow():
            changed = builder.emit(relax.op.call_tir_inplace(kernel, [state, new], [0], VECTOR))
            result = builder.emit_output(relax.Tuple([builder.emit(relax.op.exp(changed))]))
        builder.emit_func_output(result)
    plan = planned(builder.finalize())
    function = plan.functions["main"]
    assert [parameter.access for parameter in plan.kernels["put"].parameters] == ["update", "read"]
    assert plan.changed(function) == {0}
    assert function.calls[1].arguments[0] == Place("parameter", 0), "what follows reads the state itself"


def test_equal_constants_stand_once() -> None:
    import numpy as np

    builder = relax.BlockBuilder()
    for name in ("one", "two"):
        x = relax.Var("x", VECTOR)
        with builder.function(name, [x]):
            with builder.dataflow():
                total = builder.emit(relax.op.add(x, relax.const(np.arange(8, dtype=np.float32))))
                result = builder.emit_output(relax.Tuple([total]))
            builder.emit_func_output(result)
    plan = planned(builder.finalize(), "one", "two")
    (constant,) = plan.constants
    assert constant.data == np.arange(8, dtype=np.float32).tobytes()
    assert all(f.calls[0].arguments[1] == Place("constant", 0) for f in plan.functions.values())


@pytest.mark.in_turns(3)
def test_kernels_are_named_in_the_order_of_their_use() -> None:
    """Whatever numbers TVM gave them: equal parts of two devices have kernels of one name."""
    builder = relax.BlockBuilder()
    kernels = [builder.add_func(put(False).with_attr("n", i), "put") for i in range(12)]
    state, new = relax.Var("state", VECTOR), relax.Var("new", VECTOR)
    with builder.function("main", [state, new]):
        with builder.dataflow():
            for kernel in (kernels[11], kernels[3], kernels[11]):
                state = builder.emit(relax.op.call_tir_inplace(kernel, [state, new], [0], VECTOR))
            result = builder.emit_output(relax.Tuple([state]))
        builder.emit_func_output(result)
    assert [call.kernel for call in planned(builder.finalize()).functions["main"].calls] == [
        "put",
        "put_1",
        "put",
    ]


def test_outputs_may_be_parameters() -> None:
    builder = relax.BlockBuilder()
    written(builder, relax.Var("x", VECTOR))
    function = planned(builder.finalize()).functions["main"]
    assert (function.calls, function.arena_bytes) == ((), 0)
    assert function.outputs[0].place == Place("parameter", 0)


def test_what_no_plan_can_say_is_a_bug_that_is_named() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", VECTOR)
    with builder.function("main", [x]):
        with builder.dataflow():
            called = builder.emit(relax.call_dps_packed("somewhere.else", [x], VECTOR))
            result = builder.emit_output(relax.Tuple([called]))
        builder.emit_func_output(result)
    with pytest.raises(InternalError, match=r"(?s)a kernel plan has no Call: .*somewhere\.else"):
        planned(builder.finalize())


def test_every_operator_can_be_planned() -> None:
    names = [f"case_{number}" for number in range(len(CASES))]
    plan = planned(module_of_cases(), *names)
    assert sum(len(plan.functions[name].calls) for name in names) >= len(names)


def test_tensors_that_live_together_lie_apart() -> None:
    rng = random.Random(5)
    for _ in range(50):
        starts = [rng.randrange(40) for _ in range(60)]
        lives = [Life(64 * rng.randint(1, 30), start, start + rng.randrange(8)) for start in starts]
        size = lay_out(lives)
        for number, one in enumerate(lives):
            assert one.offset % 64 == 0 and one.end <= size
            for other in lives[:number]:
                assert not one.meets(other) or one.end <= other.offset or other.end <= one.offset
        needed = max(
            sum(life.bytes for life in lives if life.first <= call <= life.last) for call in range(48)
        )
        assert needed <= size <= 1.5 * needed


def test_a_chain_takes_the_room_of_two() -> None:
    lives = [Life(64, call, call + 1) for call in range(20)]
    assert lay_out(lives) == 128
