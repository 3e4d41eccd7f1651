"""The onnxruntime lowering of attention and caches against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.numpy_attention import Array, attention, update
from tests.targets.ort_session import Session

Case = tuple[list[int], list[int], int]
"""Position and length of each sequence, rows of the step."""
pytestmark = pytest.mark.ort
HEADS, KV, SIZE, MAX, SCALE = 4, 2, 8, 32, 0.3
GROUPED = "com.microsoft.GroupQueryAttention"
STEPS = {
    "prompt": ([0], [7], 7),
    "prompts of unequal length": ([0, 0, 0], [7, 3, 5], 7),
    "chunk": ([6], [5], 5),
    "decode": ([6], [1], 1),
    "decode at unequal positions": ([6, 0, 31], [1, 1, 1], 1),
}
"""Name → position and length of each sequence, rows of the step."""
CHUNKS = {"chunks at unequal positions": ([6, 0, 9], [5, 3, 5], 5)}
"""What GroupQueryAttention refuses and the general lowering does."""


def text(
    attributes: str = "",
    mask: str | None = None,
    sinks: bool = False,
    value_size: int = SIZE,
    size: int = SIZE,
) -> str:
    """One attention over its own cache, as front ends write it."""
    extra = f"  input %mask: {mask}\n" if mask else ""
    extra += f"  input %sinks: f32[{HEADS}]\n" if sinks else ""
    operands = f"%q, %keys, %values, %position, {'%mask' if mask else '_'}" + (", %sinks" if sinks else "")
    result = f"f32[batch,{HEADS},sequence,{value_size}]"
    return f"""partc-ir 1
model {{"name": "m", "task": "text-generation", "max_batch": 3}}
graph part_0 opset 24 {{
  input %x: f32[batch,sequence,{HEADS * size}]
  input %k: f32[batch,{KV},sequence,{size}]
  input %v: f32[batch,{KV},sequence,{value_size}]
  input %position: i64[batch]
{extra}  const %split = i64[4] [0, 0, {HEADS}, {size}]
  const %join = i64[3] [0, 0, -1]
  state %cache.0.key: f32[batch,{KV},{MAX},{size}]
  state %cache.0.value: f32[batch,{KV},{MAX},{value_size}]
  %heads: f32[batch,sequence,{HEADS},{size}] = Reshape(%x, %split)
  %q: f32[batch,{HEADS},sequence,{size}] = Transpose(%heads) {{perm=[0, 2, 1, 3]}}
  %keys: f32[batch,{KV},{MAX},{size}] = partc.UpdateState(%cache.0.key, %k, %position)
  %values: f32[batch,{KV},{MAX},{value_size}] = partc.UpdateState(%cache.0.value, %v, %position)
  %a: {result} = partc.Attention({operands}) {{scale={SCALE}, causal=1{attributes}}}
  %rows: f32[batch,sequence,{HEADS},{value_size}] = Transpose(%a) {{perm=[0, 2, 1, 3]}}
  %out: f32[batch,sequence,{HEADS * value_size}] = Reshape(%rows, %join)
  output %out
}}
"""


def step(session: Session, case: Case, value_size: int = SIZE, size: int = SIZE, mask: Array | None = None,
         sinks: Array | None = None, **options: Any) -> None:  # fmt: skip
    """Run one step on random caches and compare every valid row and the caches."""
    position, length, rows = np.array(case[0]), case[1], case[2]
    batch, rng = len(position), np.random.default_rng(1)

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    x, k, v = draw(batch, rows, HEADS * size), draw(batch, KV, rows, size), draw(batch, KV, rows, value_size)
    caches = draw(batch, KV, MAX, size), draw(batch, KV, MAX, value_size)
    session.set_state("cache.0.key", caches[0])
    session.set_state("cache.0.value", caches[1])
    inputs = {"x": x, "k": k, "v": v, "position": position}
    extra = {name: array for name, array in (("mask", mask), ("sinks", sinks)) if array is not None}
    out = session.run(**inputs, **extra)["out"]
    keys, values = update(caches[0], k, position), update(caches[1], v, position)
    q = x.reshape(batch, rows, HEADS, size).transpose(0, 2, 1, 3)
    expected = attention(q, keys, values, position, scale=SCALE, mask=mask, sinks=sinks, **options)
    expected = expected.transpose(0, 2, 1, 3).reshape(batch, rows, -1)
    for b in range(batch):
        np.testing.assert_allclose(out[b, : length[b]], expected[b, : length[b]], atol=1e-5)
        valid = position[b] + length[b]
        np.testing.assert_array_equal(session.state("cache.0.key")[b, :, :valid], keys[b, :, :valid])
        np.testing.assert_array_equal(session.state("cache.0.value")[b, :, :valid], values[b, :, :valid])


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(
    "options", [{}, {"window": 4}, {"softcap": 5.0}, {"window": 1, "softcap": 2.0}], ids=str
)
def test_grouped_attention(tmp_path: Path, case: Case, options: dict[str, Any]) -> None:
    session = Session(text("".join(f", {key}={value}" for key, value in options.items())), tmp_path)
    assert session.operators().count(GROUPED) == 1
    step(session, case, **options)


def test_grouped_attention_needs_no_transposes_of_its_queries(tmp_path: Path) -> None:
    operators = Session(text(), tmp_path).operators()
    assert (
        operators.count("Transpose") == 2
    )  # of the new keys and values, which the graph is given in the other layout
    assert "TensorScatter" not in operators


def test_grouped_attention_declares_that_chunks_of_batches_are_refused(tmp_path: Path) -> None:
    session = Session(text(), tmp_path)
    assert not session.artifact.engine.chunked_prefill
    with pytest.raises(Exception, match="batch_size must be 1"):
        step(session, CHUNKS["chunks at unequal positions"])


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("options", [{}, {"window": 3}], ids=str)
def test_sinks(tmp_path: Path, case: Case, options: dict[str, Any]) -> None:
    session = Session(
        text("".join(f", {key}={value}" for key, value in options.items()), sinks=True), tmp_path
    )
    assert GROUPED in session.operators()
    step(session, case, sinks=np.array([0.5, -1.0, 2.0, 0.0], np.float32), **options)


@pytest.mark.parametrize("case", {**STEPS, **CHUNKS}.values(), ids=[*STEPS, *CHUNKS])
@pytest.mark.parametrize(
    "options", [{"chunk": 4}, {"chunk": 4, "softcap": 2.0}, {"window": 3, "chunk": 5}], ids=str
)
def test_chunked_attention(tmp_path: Path, case: Case, options: dict[str, Any]) -> None:
    session = Session(text("".join(f", {key}={value}" for key, value in options.items())), tmp_path)
    assert GROUPED not in session.operators()
    assert session.operators().count("TensorScatter") == 2
    assert session.artifact.engine.chunked_prefill
    step(session, case, **options)


@pytest.mark.parametrize("case", {**STEPS, **CHUNKS}.values(), ids=[*STEPS, *CHUNKS])
def test_values_of_another_size(tmp_path: Path, case: Case) -> None:
    session = Session(text(value_size=6), tmp_path)
    assert GROUPED not in session.operators()
    step(session, case, value_size=6)


@pytest.mark.parametrize("case", {**STEPS, **CHUNKS}.values(), ids=[*STEPS, *CHUNKS])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("kind", ["f32", "bool"])
def test_mask(tmp_path: Path, case: Case, kind: str, sinks: bool) -> None:
    rows, rng = case[2], np.random.default_rng(2)
    heads = HEADS if kind == "f32" else 1
    batch = 1 if kind == "f32" else len(case[0])
    mask: Array = rng.standard_normal((batch, heads, rows, MAX)).astype(np.float32)
    if kind == "bool":
        mask = mask > -0.5
        mask[..., 0] = True
    session = Session(
        text(mask=f"{kind}[{'1' if kind == 'f32' else 'batch'},{heads},sequence,{MAX}]", sinks=sinks),
        tmp_path,
    )
    assert GROUPED not in session.operators()
    step(session, case, mask=mask, sinks=np.array([0.5, -1.0, 2.0, 0.0], np.float32) if sinks else None)


@pytest.mark.parametrize("case", {**STEPS, **CHUNKS}.values(), ids=[*STEPS, *CHUNKS])
def test_heads_of_an_odd_size(tmp_path: Path, case: Case) -> None:
    """GroupQueryAttention takes multiples of 8 alone."""
    session = Session(text(size=6, value_size=6), tmp_path)
    assert GROUPED not in session.operators()
    step(session, case, size=6, value_size=6)
