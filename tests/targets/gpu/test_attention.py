"""Attention on GPUs by kernels of its own: prompts in tiles, and tokens whose row goes to the cache at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from partc.format.dims import evaluate
from partc.format.kernel_plan import KERNELS_FILE
from tests.targets.compiled_steps import Compiled, Reference, module_of, write_weights
from tests.targets.opencl import on_opencl

pytestmark = [pytest.mark.tvm, pytest.mark.opencl]
pytest.importorskip("tvm")

ROWS, PROMPT, HEADS = 48, 37, 4
"""Rows of a cache; a prompt of two whole tiles of queries and a part of one."""
FORMS = {
    "queries share keys": (2, 8, 8, "", ""),
    "a window": (4, 8, 8, "window = 5, ", ""),
    "chunks and a cap": (2, 8, 8, "chunk = 6, softcap = 2.0, ", ""),
    "heads of other sizes": (2, 6, 10, "", ""),
    "sinks": (1, 8, 4, "window = 9, ", "sinks"),
    "rotated in part": (2, 10, 8, "", "rotary"),
}
"""Heads of keys, sizes of keys and values, attributes, and what is around."""


def lines_of(form: str) -> list[str]:
    """Attention over a cache of the rows of this step and those before."""
    kv, d, e, rule, around = FORMS[form]
    lines = [
        f"input %q: f32[batch, {HEADS}, sequence, {d}]",
        f"input %k: f32[batch, {kv}, sequence, {d}]",
        f"input %v: f32[batch, {kv}, sequence, {e}]",
        "input %position: i64[batch]",
        f"state %cache.key: f32[batch, {kv}, {ROWS}, {d}]",
        f"state %cache.value: f32[batch, {kv}, {ROWS}, {e}]",
    ]
    query, key, sinks = "%q", "%k", ""
    if "sinks" in around:
        lines.append(f"input %sinks: f32[{HEADS}]")
        sinks = ", _, %sinks"
    if "rotary" in around:
        lines[4:4] = [f"input %{table}: f32[batch, sequence, 4]" for table in ("cos", "sin")]
        turned = "rotary_embedding_dim = 8" if d > 8 else "interleaved = 0"
        for name, heads in (("q", HEADS), ("k", kv)):
            kind = f"f32[batch, {heads}, sequence, {d}]"
            lines.append(f"%{name}.turned: {kind} = RotaryEmbedding(%{name}, %cos, %sin) {{{turned}}}")
        query, key = "%q.turned", "%k.turned"
    for name, new, width in (("key", key, d), ("value", "%v", e)):
        kind = f"f32[batch, {kv}, {ROWS}, {width}]"
        lines.append(f"%{name}.full: {kind} = partc.UpdateState(%cache.{name}, {new}, %position)")
    call = f"partc.Attention({query}, %key.full, %value.full, %position{sinks})"
    lines.append(f"%y: f32[batch, {HEADS}, sequence, {e}] = {call} {{{rule}scale = 0.4, causal = 1}}")
    return [*lines, "output %y"]


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_and_tokens_behind_it(form: str, tmp_path: Path) -> None:
    """Three tokens behind a prompt in tiles: the second and third read what steps of one row wrote.

    One behind the end of the cache is written nowhere, as the last one shows, which reads everything again.
    """
    write_weights(tmp_path, {"w": np.zeros(1, np.float32)})
    module = module_of(lines_of(form), tmp_path, "tvm", 1, ROWS)
    reference = Reference(module.graph, tmp_path, {"batch": 1, "sequence": ROWS})
    compiled = Compiled(module, tmp_path / "build", on_opencl("phone"))
    assert kernels_of(tmp_path / "build") == {1: "attend_step", ROWS: "attend"}
    compiled.reset(1, ROWS)
    rng = np.random.default_rng(3)
    sinks = rng.standard_normal(HEADS).astype(np.float32)
    for position, rows in (
        (0, PROMPT),
        (PROMPT, 1),
        (PROMPT + 1, 1),
        (PROMPT + 2, 1),
        (ROWS, 1),
        (PROMPT + 3, 1),
    ):
        sizes = {"batch": 1, "sequence": rows}
        given = {}
        for value in module.graph.inputs:
            shape = [evaluate(size, sizes) for size in value.shape or ()]
            given[value.name] = rng.standard_normal(shape).astype(np.float32)
        given |= {"position": np.array([position])} | ({"sinks": sinks} if "sinks" in given else {})
        right, found = reference.run(given)["y"], compiled.run(given, sizes)["y"]
        assert position == ROWS or np.abs(found - right).max() <= 1e-5 * np.abs(right).max()


def kernels_of(build: Path) -> dict[int, str]:
    """Rows of a step → the kernel of its attention."""
    plan = json.loads((build / "devices" / "phone" / KERNELS_FILE).read_text())
    return {
        int(name.rpartition("_s")[2]): call["kernel"]
        for name, function in plan["functions"].items()
        for call in function["calls"]
        if call["kernel"].startswith("attend")
    }
