"""Every operator of ours on every target against its numpy reference: forms, prompts, continued prompts, tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partc.config.devices import DevicesConfig, load_devices
from partc.errors import UserError
from partc.format.dtypes import Array
from partc.ir.effects import updates
from partc.ir.graph import Module, Node, Weight
from partc.ir.operators import OPERATORS
from partc.pipeline.contract import Target
from partc.pipeline.registry import TARGETS, load_target
from tests.runtime.engines.hostile import check_kernels
from tests.targets.compiled_steps import MAX, Compiled, Reference, module_of, with_attributes, write_weights
from tests.targets.opencl import on_opencl
from tests.targets.operator_cases import CASES, EXPERTS, STEPS, VOCAB, Cases, OneStep, inputs_of

DEVICES = """\
source: phone
devices:
  phone: {target: tvm, options: {chunks: [8], batches: []}, flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 1 GB}
"""
"""Code for three sequences of 1, 8 and 16 rows, instead of one sequence too and every power of two: compiling is nearly
all of the time."""
TIERS = {"ort": pytest.mark.ort, "tvm": pytest.mark.tvm}
LONG_ON_OPENCL = ("partc.Attention", "partc.QuantizedAttention")
"""Operators with so many forms that their kernels take OpenCL long to compile; models with them are run every time."""


def _computing() -> Iterator[Any]:
    """Every operator with every target and provider that is compared."""
    for operator in OPERATORS:
        for target in (name for name in TARGETS if name != "null"):
            yield pytest.param(
                operator, target, "cpu", marks=TIERS.get(target, ()), id=f"{operator}-{target}"
            )
        slow = [pytest.mark.slow] if operator in LONG_ON_OPENCL else []
        marks = [pytest.mark.tvm, pytest.mark.opencl, *slow]
        yield pytest.param(operator, "tvm", "opencl", marks=marks, id=f"{operator}-opencl")


def test_every_operator_has_cases() -> None:
    assert CASES.keys() == OPERATORS.keys()


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(("operator", "target", "provider"), list(_computing()))
def test_a_target_computes_what_the_reference_does(
    operator: str, target: str, provider: str, tmp_path: Path
) -> None:
    (tmp_path / "devices.yaml").write_text(DEVICES)
    devices = load_devices(tmp_path / "devices.yaml") if target == "tvm" else None
    _check(operator, target, tmp_path, on_opencl("phone") if provider == "opencl" else devices, provider)


@pytest.mark.in_turns(2)
@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("operator", OPERATORS)
def test_code_for_every_size_of_step(operator: str, tmp_path: Path) -> None:
    _check(operator, "tvm", tmp_path, None)


def _check(
    operator: str, target: str, tmp_path: Path, devices: DevicesConfig | None, provider: str = "cpu"
) -> None:
    cases = CASES[operator]()
    write_weights(tmp_path, cases.weights)
    module = module_of(cases.text, tmp_path, target, max(STEPS))
    compiler = load_target(target, {"provider": provider})
    if refused := _refused(module, compiler) & cases.outputs.keys():
        with pytest.raises(UserError, match="has no code for"):
            compiler.lower([module.graph], module.info)
        if refused >= cases.outputs.keys():
            return
        cases.leave_out(refused)
        module = module_of(cases.text, tmp_path, target, max(STEPS))
    assert cases.outputs
    compiled = Compiled(module, tmp_path / "build", devices)
    for batch, steps in STEPS.items():
        compiled.reset(batch)
        reference = Reference(module.graph, tmp_path, {"batch": batch, "sequence": MAX})
        _compare(operator, cases, steps, reference, compiled)
    if (target, provider) == ("tvm", "cpu"):
        check_kernels(tmp_path / "build" / "devices" / "phone")


def _refused(module: Module, target: Target) -> set[str]:
    """Values that there is no code for: those that the target refuses, and what is computed from them."""
    found: set[str] = set()
    for node in module.graph.nodes:
        read = {value.name for value in node.inputs if value is not None}
        if read & found or target.refusal(node) is not None:
            found |= {output.name for output in node.outputs}
    return found


def _compare(
    operator: str, cases: Cases, steps: tuple[OneStep, ...], reference: Reference, compiled: Compiled
) -> None:
    """Every step and case; and as a control, that another attribute or operand would have been noticed."""
    rng = np.random.default_rng(5)
    nodes = {output.name: node for node in reference.graph.nodes for output in node.outputs}
    unnoticed: dict[str, bool] = {}
    for step in steps:
        inputs = dict(inputs_of(cases.text, step, rng))
        found = compiled.run(inputs, {"batch": len(step.position), "sequence": step.rows})
        expected = reference.run(inputs)
        for name, counts in cases.outputs.items():
            call = _call(nodes[name])
            error = _error(found[name], expected[name], counts, step)
            assert error <= cases.tolerance, f"{step.name}, {call}: {error}"
            for what, wrong in _spoiled(nodes[name], operator, reference):
                if _is_of_a_state(nodes[name]) and np.array_equal(wrong, expected[name]):
                    continue  # queries do not change a state, and lengths no rows but those behind them
                is_unnoticed = _error(found[name], wrong, counts, step) <= 2 * cases.tolerance + 1e-3
                unnoticed[f"{call} with {what}"] = unnoticed.get(f"{call} with {what}", True) and is_unnoticed
    assert unnoticed
    assert [case for case, missed in unnoticed.items() if missed] == []


def _call(node: Node) -> str:
    operands = ", ".join("_" if value is None else value.name for value in node.inputs)
    return f"{node.op}({operands}) {node.attributes}"


def _error(found: Array, expected: Array, counts: str, step: OneStep) -> float:
    """The largest difference of what counts, as a part of the largest number."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    worst = 0.0
    for b, (start, length) in enumerate(zip(step.position, step.length, strict=True)):
        end = {"rows": length, "tokens": length, "cache": start + length, "all": None}[counts]
        is_first = counts == "tokens"
        got, right = (
            a if end is None else a[b, :end] if is_first else a[b, :, :end] for a in (found, expected)
        )
        largest = max(np.abs(got).max(), np.abs(right).max())
        worst = max(worst, float(np.abs(got - right).max() / largest))
    return worst


def _spoiled(end: Node, operator: str, reference: Reference) -> Iterator[tuple[str, Array]]:
    """What a case would have given with one attribute or one operand changed."""
    first = end.operand(0).producer
    node = end if end.op == operator else first
    assert node is not None
    operands = reference.read[node]
    place_read = 0 if node is end else node.outputs.index(end.operand(0))

    def result(found: list[Array]) -> Array:
        return found[0] if node is end else reference.evaluate(end, [found[place_read]])[0]

    for what, attributes in _other_attributes(node):
        yield what, result(reference.evaluate(with_attributes(node, attributes), operands))
    for place, array in enumerate(operands):
        if array is None or array.size == 1:
            continue
        other = [*operands[:place], _other(node, place, array), *operands[place + 1 :]]
        yield f"another operand {place}", result(reference.evaluate(node, other))


def _is_of_a_state(end: Node) -> bool:
    """Whether it shows a result of a node that rewrites a state as a whole."""
    made = end.operand(0).producer
    return made is not None and any(state.kind == "whole" for state in updates(made))


def _other_attributes(node: Node) -> Iterator[tuple[str, dict[str, int | float]]]:
    spans = [name for name in ("window", "chunk") if node.attributes.get(name)]
    for spec in OPERATORS[node.op].attributes:
        value = node.attributes.get(spec.name, spec.default)
        if value == spec.default or spec.name == "bits" or (spec.name == "causal" and spans):
            continue  # bits go with the operands; a window and a chunk are causal too
        if spec.name == "block":
            continue
        assert isinstance(value, int | float)
        other = 1.5 * value if spec.default is None else spec.default
        yield f"{spec.name} = {other}", {spec.name: other}


def _other(node: Node, place: int, array: Array) -> Array:
    value = node.operand(place)
    if value.name == "position":
        return array + 1
    if array.dtype == bool:
        return ~array
    if value.name in ("chosen", "tokens"):
        return (array + 1) % (EXPERTS if value.name == "chosen" else VOCAB)
    return np.flip(array, 0 if isinstance(value, Weight) else -1 if array.shape[-1] > 1 else -2)
