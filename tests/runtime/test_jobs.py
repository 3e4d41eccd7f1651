"""Nothing that a client sends ends the source: it is a request, or an error of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.dtypes import DTYPES
from partc.format.role import Role, load_role
from partc.runtime.core.link import Progress
from partc.runtime.jobs import Job, fill_prompts, fill_tensors, opening_of
from partc.runtime.wire import Opening, to_frame
from tests.runtime.bundles import classifier, language_model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Role:
    build: Path = classifier().write(tmp_path_factory.mktemp("jobs") / "build")
    return load_role(build / "devices" / "a")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Role:
    build: Path = language_model("null").write(tmp_path_factory.mktemp("jobs") / "build")
    return load_role(build / "devices" / "a")


def job(prompts: list[list[int]] | None = None) -> Job:
    return Job(b"", 1, Opening({}), 0.0, Progress(0.0), prompts=prompts or [])


def spec(name: str, array: Any) -> tuple[str, str, tuple[int, ...]]:
    return name, str(array.dtype), array.shape


@given(shape=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2), max_size=4))
def test_any_shape(encoder: Role, shape: list[int]) -> None:
    try:
        fill_empty(shape, encoder)
    except RunError:
        return
    rows, width = shape
    assert rows <= encoder.dims["batch"]
    assert width <= encoder.dims["sequence"]


@pytest.mark.parametrize("shape", [(2**40, 2**40), (0, 2**63), (2**62, 0), (0, 2**31, 2**31, 2**31)])
def test_shapes_beyond_numpy(encoder: Role, shape: tuple[int, ...]) -> None:
    """Sizes whose product overflows, or is 0 only because of one of them."""
    with pytest.raises(RunError):
        fill_empty(shape, encoder)


def fill_empty(shape: Sequence[int], manifest: Role) -> None:
    values = [(name, "int64", shape) for name in manifest.inputs]
    fill_tensors(job(), {"values": values}, [memoryview(b"") for _ in values], manifest)


@pytest.mark.parametrize("lengths", [[np.nan], [np.inf], [1.5], [True], [2**63], [-1], [], [1, 1]])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bfloat16"}))
def test_any_lengths(encoder: Role, lengths: list[Any], dtype: str) -> None:
    with np.errstate(all="ignore"):
        length = np.array(lengths, np.float64).astype(DTYPES[dtype])
    arrays = {name: np.ones((1, 3), np.int64) for name in encoder.inputs} | {"length": length}
    made = job()
    try:
        fill_tensors(
            made,
            {"values": [spec(name, array) for name, array in arrays.items()]},
            [to_frame(array) for array in arrays.values()],
            encoder,
        )
    except RunError:
        return
    assert made.length in {(1,), (2,), (3,)}


def test_token_ids(decoder: Role) -> None:
    unknown = decoder.changed(model=replace(decoder.model, vocab_size=None))
    fields = {"max_new_tokens": 1, "ignore_eos": False, "stop": []}
    with pytest.raises(RunError, match="token -1 is below 0"):
        fill_prompts(job([[1, -1]]), fields, unknown)
    with pytest.raises(RunError, match="not below"):
        fill_prompts(job([[2**64 - 1]]), fields, unknown)


@given(st.dictionaries(st.sampled_from(["temperature", "top_k", "top_p", "seed", "self", "x"]), st.floats()))
def test_any_parameters(sampling: dict[str, float]) -> None:
    fields = {"sampling": sampling, "trace": False}
    if sampling.keys() & {"top_k", "seed", "self", "x"}:
        with pytest.raises(RunError):
            opening_of(fields)
