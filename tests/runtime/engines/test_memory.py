from __future__ import annotations

import json
import mmap
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from partc.errors import BundleError
from partc.format.layouts import ALIGNMENT
from partc.format.role import load_role
from partc.runtime.engines.memory import MappedFiles, map_tensors, release_mapped
from partc.runtime.engines.states import LazyZeros, States
from tests.runtime.bundles import language_model

MIB = 1 << 20


def resident(kind: str = "RssAnon") -> int:
    """Bytes of this process, those that are no files for a start."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[kind].split()[0]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_zeros_take_memory_where_they_are_written_and_give_it_back() -> None:
    before = resident()
    memory = LazyZeros(256 * MIB)
    memory.clear()
    assert resident() - before < 16 * MIB
    memory.bytes[: 64 * MIB] = 1
    assert 48 * MIB < resident() - before < 96 * MIB
    memory.clear()
    assert resident() - before < 16 * MIB
    assert not memory.bytes[:: MIB // 2].any()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mapped_files_are_released_unless_they_were_written_to(tmp_path: Path) -> None:
    held = []
    for name in ("read", "written"):
        (tmp_path / name).write_bytes(b"x" * 32 * MIB)
        with (tmp_path / name).open("rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        assert held[-1][::4096].count(b"x") == 32 * MIB // 4096
    held[1][5] = ord("y")
    before = resident("RssFile")
    release_mapped(tmp_path)
    assert 24 * MIB < before - resident("RssFile") < 40 * MIB, "one of the two"
    assert (held[0][5], held[1][5]) == (ord("x"), ord("y"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("is_released", [True, False])
def test_files_are_released_while_they_are_read(tmp_path: Path, is_released: bool) -> None:
    (tmp_path / "weights").write_bytes(bytes(range(256)) * (128 * MIB // 256))
    files = MappedFiles([tmp_path / "weights"])
    data = files.of[tmp_path / "weights"]
    before = resident("RssFile")
    with files.released() if is_released else nullcontext():
        assert data[::4096].count(0) == len(data) // 4096
        end = time.monotonic() + (10.0 if is_released else 0.1)
        while resident("RssFile") - before > 32 * MIB and time.monotonic() < end:
            time.sleep(0.005)
        held = resident("RssFile") - before
    assert (held <= 32 * MIB) == is_released
    assert data[257] == 1


def test_a_missing_file_is_not_mapped(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="weights"):
        MappedFiles([tmp_path / "weights"])


def test_no_bytes_at_all() -> None:
    memory = LazyZeros(0)
    memory.clear()
    assert memory.bytes.shape == (0,)


def test_states_begin_with_zeros_and_slots_are_apart(tmp_path: Path) -> None:
    build = language_model("null").write(tmp_path / "build")
    role = load_role(build / "devices" / "b")
    (module,) = role.submodules.values()
    states = States(role.dims, role.model.max_requests)
    states.add(module)
    for slot in range(2):
        states.reset(slot, {"batch": 3, "sequence": 4})
    (first,), (second,) = (states.of(module.name, slot).values() for slot in range(2))
    assert first.shape[0] == 3
    assert first.ctypes.data % 64 == 0
    first.fill(np.inf)
    assert not second.any()
    states.reset(0, {"batch": 1, "sequence": 4})
    (first,) = states.of(module.name, 0).values()
    assert first.shape[0] == 1
    states.reset(0, {"batch": 3, "sequence": 4})
    (first,) = states.of(module.name, 0).values()
    assert not first.any(), "an infinity must not reach the next request"


def test_tensors_are_mapped_unless_they_lie_askew(tmp_path: Path) -> None:
    data = np.arange(40, dtype=np.float32)
    header = {
        "straight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
        "askew": {"dtype": "F32", "shape": [3], "data_offsets": [68, 80]},
        "halves": {"dtype": "BF16", "shape": [2], "data_offsets": [128, 132]},
    }
    text = (
        json.dumps(header).encode().ljust(248)
    )  # with its length before it, the data begin at a multiple of 64
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data.tobytes())
    found = map_tensors(tmp_path / "w.safetensors")
    assert all(array.ctypes.data % ALIGNMENT == 0 and array.flags.writeable for array, _ in found.values())
    np.testing.assert_array_equal(found["straight"][0], data[:16].reshape(4, 4))
    np.testing.assert_array_equal(found["askew"][0], [17, 18, 19])
    assert found["straight"][0].base is not None and found["askew"][1] == "float32"
    assert found["halves"][1] == "bfloat16" and found["halves"][0].dtype == np.uint16
    (tmp_path / "w.safetensors").write_bytes(b"not one")
    with pytest.raises(BundleError, match="damaged: its header is longer than the file"):
        map_tensors(tmp_path / "w.safetensors")
