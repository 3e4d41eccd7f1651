"""Weights in the pages of their file, and large pages that take their place while somebody reads there."""

from __future__ import annotations

import gc
import json
import threading
from errno import ENOMEM
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.format.dtypes import Array
from partc.format.safetensors import Entry, Header
from partc.runtime.engines import mapped_weights
from partc.runtime.engines.mapped_weights import WeightMappings, _can_place

PAGE = 2 << 20

needs_large_pages = pytest.mark.skipif(not _can_place(), reason="no large pages here")


def write(path: Path, arrays: dict[str, Array], lead: int = 0) -> list[Entry]:
    """A safetensors file whose tensors lie in this order, `lead` bytes behind an aligned place."""
    header: dict[str, object] = {}
    at = 0
    for name, array in arrays.items():
        kind = {"float32": "F32", "uint8": "U8"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64 + lead)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(x.tobytes() for x in arrays.values()))
    found = Header(path, BundleError, None)
    return [found.entry(name) for name in arrays]


def drawn(*bytes_of: int) -> dict[str, Array]:
    rng = np.random.default_rng(len(bytes_of))
    return {f"w{i}": rng.integers(0, 255, size, np.uint8) for i, size in enumerate(bytes_of)}


def large_bytes(array: Array) -> int:
    """Bytes of large pages in the mappings in which an array lies, as the system has them."""
    start, found, is_there = array.ctypes.data, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            is_there = low < start + array.nbytes and start < high
        elif first == "AnonHugePages:" and is_there:
            found += int(rest[0]) << 10
    return found


@needs_large_pages
def test_a_file_is_mapped_and_moves_into_large_pages_at_the_same_addresses(tmp_path: Path) -> None:
    arrays = drawn(9 * PAGE, 3 * PAGE + 64, 128)
    mappings = WeightMappings()
    tensors = mappings.map(tmp_path / "w", write(tmp_path / "w", arrays))
    before = [tensor.ctypes.data for tensor in tensors]
    assert sum(map(large_bytes, tensors)) == 0
    pieces = 0
    while mappings.settle():
        pieces += 1
    assert pieces >= 2
    assert [tensor.ctypes.data for tensor in tensors] == before
    assert str(tmp_path / "w") not in Path("/proc/self/maps").read_text(), "all of it, up to its end"
    assert large_bytes(tensors[0]) >= 8 * PAGE
    for tensor, array in zip(tensors, arrays.values(), strict=True):
        np.testing.assert_array_equal(tensor, array)


@needs_large_pages
def test_who_reads_meanwhile_reads_the_same(tmp_path: Path) -> None:
    arrays = drawn(40 * PAGE)
    mappings = WeightMappings()
    (tensor,) = mappings.map(tmp_path / "w", write(tmp_path / "w", arrays))
    expected, found, ended = int(arrays["w0"].astype(np.int64).sum()), set[int](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            found.add(int(tensor.astype(np.int64).sum()))

    reader = threading.Thread(target=read)
    reader.start()
    while mappings.settle():
        pass
    ended.set()
    reader.join()
    assert found == {expected}


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6 * PAGE), min_size=1, max_size=5),
    lead=st.sampled_from([0, 8, 63]),
    chosen=st.sets(st.integers(0, 4), min_size=1),
)
def test_any_tensors_of_any_file_are_its_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], lead: int, chosen: set[int]
) -> None:
    path = tmp_path_factory.mktemp("any") / "w"
    arrays = drawn(*sizes)
    entries = [entry for i, entry in enumerate(write(path, arrays, lead)) if i in chosen]
    mappings = WeightMappings()
    tensors = mappings.map(path, entries)
    for _ in range(2):
        for tensor, entry in zip(tensors, entries, strict=True):
            assert tensor.ctypes.data % 64 == 0
            assert tensor.tobytes() == arrays[entry.name].tobytes()
        while mappings.settle():
            pass


@needs_large_pages
@pytest.mark.parametrize("refused", ["mmap", "mremap"])
def test_without_memory_for_copies_the_file_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A call that puts memory in the place of other memory may fail when that is gone already."""
    arrays = drawn(20 * PAGE)
    mappings = WeightMappings()
    (tensor,) = mappings.map(tmp_path / "w", write(tmp_path / "w", arrays))
    call = mapped_weights._call

    def refuse(name: str, *arguments: int | None) -> int:
        if name != refused or arguments[0] == tensor.ctypes.data // PAGE * PAGE:  # but for the file itself
            return call(name, *arguments)
        if refused == "mremap":
            mapped_weights._system().munmap(arguments[-1], arguments[1])
        raise OSError(ENOMEM, "refused")

    monkeypatch.setattr(mapped_weights, "_call", refuse)
    assert not mappings.settle()
    assert large_bytes(tensor) == 0
    np.testing.assert_array_equal(tensor, arrays["w0"])


@needs_large_pages
def test_pages_that_nobody_asked_for_stay_in_the_file(tmp_path: Path) -> None:
    entries = write(tmp_path / "w", drawn(8 * PAGE, 4 * PAGE))
    mappings = WeightMappings()
    (tensor,) = mappings.map(tmp_path / "w", entries[1:])
    while mappings.settle():
        pass
    assert 3 * PAGE <= large_bytes(tensor) <= 5 * PAGE


def test_a_mapping_goes_with_its_last_tensor(tmp_path: Path) -> None:
    mappings = WeightMappings()
    tensors = mappings.map(tmp_path / "w", write(tmp_path / "w", drawn(4 * PAGE)))
    mapped = str(tmp_path / "w")
    assert mapped in Path("/proc/self/maps").read_text()
    tensors.clear()
    gc.collect()
    assert mapped not in Path("/proc/self/maps").read_text()
    assert not mappings.settle()


@needs_large_pages
def test_a_file_that_was_cut_is_an_error_of_the_bundle(tmp_path: Path) -> None:
    mappings = WeightMappings()
    entries = write(tmp_path / "w", drawn(4 * PAGE))
    tensors = mappings.map(tmp_path / "w", entries)
    with (tmp_path / "w").open("r+b") as file:
        file.truncate(PAGE // 2)
    with pytest.raises(BundleError, match="shorter than its header says"):
        while mappings.settle():
            pass
    del tensors


def test_a_file_that_is_gone_is_an_error_of_the_bundle(tmp_path: Path) -> None:
    entries = write(tmp_path / "w", drawn(64))
    (tmp_path / "w").unlink()
    with pytest.raises(BundleError):
        WeightMappings().map(tmp_path / "w", entries)
