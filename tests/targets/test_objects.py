"""Object files of kernels: the same from any thread, made once, with nothing besides the kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

from partc.kept import Kept, reading_kept  # noqa: E402
from targets.tvm import objects  # noqa: E402
from targets.tvm.kernels.normalise import rms_norm  # noqa: E402
from targets.tvm.machine import Machine, machine_of  # noqa: E402

HOST = machine_of("x86_64", "", (), "cpu", "")


def kernels(count: int, columns: int = 32) -> dict[str, Any]:
    """Kernels for 1, 2, … rows."""
    names = [f"norm_{rows}" for rows in range(1, count + 1)]
    made = [rms_norm(rows, columns, 1e-5) for rows in range(1, count + 1)]
    return {name: f.with_attr("global_symbol", name) for name, f in zip(names, made, strict=True)}


def compiled(given: dict[str, Any], machine: Machine = HOST) -> list[bytes]:
    with objects.compiling(given, machine) as found:
        return [future.result() for future in found]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the object files that are kept, which is empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "partc" / "kernels"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were compiled, not found."""
    names: list[str] = []
    lower = objects._lowered

    def listed(module: Any, target: Any) -> Any:
        names.extend(variable.name_hint for variable in module.functions)
        return lower(module, target)

    monkeypatch.setattr(objects, "_lowered", listed)
    objects._object.cache_clear()
    return names


def test_objects_are_the_same_from_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, lowered: list[str], tmp_path: Path
) -> None:
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(objects, "usable_cores", lambda threads=threads: threads)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / str(threads)))
        objects._object.cache_clear()
        found.append(compiled(kernels(6)))
    assert found[0] == found[1]
    assert sorted(lowered) == sorted(2 * list(kernels(6)))


def test_equal_kernels_are_compiled_once(lowered: list[str]) -> None:
    first = compiled(kernels(2))
    assert compiled(kernels(3))[:2] == first
    assert lowered.count("norm_1") == lowered.count("norm_2") == 1
    assert compiled(kernels(1, columns=64)) != first[:1], "another kernel of the same name"
    assert compiled(kernels(1), machine_of("x86_64", "", ("avx512",), "cpu", "")) != first[:1]
    assert lowered.count("norm_1") == 3


def test_another_process_finds_what_was_compiled(lowered: list[str], kept: Path) -> None:
    first = compiled(kernels(2))
    objects._object.cache_clear()
    assert compiled(kernels(3))[:2] == first
    assert sorted(lowered) == ["norm_1", "norm_2", "norm_3"]
    assert len(list(kept.iterdir())) == 3


@pytest.mark.parametrize(
    "change", ["constant", "size", "name", "attribute", "target", "tvm", "llvm", "lowering"]
)
def test_what_changes_an_object_compiles_it(
    change: str, lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constant differs in its last bit; an attribute is one that a kernel's text alone may not tell."""
    named = {"norm": rms_norm(2, 32, 1e-5).with_attr("global_symbol", "norm")}
    compiled(named)
    assert lowered == ["norm"]
    objects._object.cache_clear()
    versions = objects._versions()
    machine = HOST
    match change:
        case "constant":
            named["norm"] = rms_norm(2, 32, np.nextafter(1e-5, 1)).with_attr("global_symbol", "norm")
        case "size":
            named["norm"] = rms_norm(3, 32, 1e-5).with_attr("global_symbol", "norm")
        case "name":
            named = {"other": named["norm"].with_attr("global_symbol", "other")}
        case "attribute":
            named["norm"] = named["norm"].with_attr("probe", 1)
        case "target":
            machine = machine_of("x86_64", "", ("avx2",), "cpu", "")
        case _:
            at = {"lowering": 0, "tvm": 1, "llvm": 2}[change]
            other = [*versions[:at], "another", *versions[at + 1 :]]
            monkeypatch.setattr(objects, "_versions", lambda: other)
    compiled(named, machine)
    assert len(lowered) == 2


def test_what_is_made_anew_takes_the_place_of_what_was_kept(lowered: list[str], kept: Path) -> None:
    """`partc compile --no-cache`: an object file may be wrong in a way that no hash tells."""
    compiled(kernels(1))
    (entry,) = kept.iterdir()
    good = entry.read_bytes()
    Kept(kept).write(entry.name, b"wrong")
    objects._object.cache_clear()
    with reading_kept(False):
        compiled(kernels(1))
    assert lowered == ["norm_1", "norm_1"]
    assert entry.read_bytes() == good


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_object_is_compiled_again(damage: str, lowered: list[str], kept: Path) -> None:
    first = compiled(kernels(1))
    (entry,) = kept.iterdir()
    good = entry.read_bytes()
    flipped = good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]
    entry.write_bytes({"cut": good[:-9], "flip": flipped, "empty": b""}[damage])
    objects._object.cache_clear()
    assert compiled(kernels(1)) == first
    assert lowered == ["norm_1", "norm_1"]
    assert entry.read_bytes() == good


def test_objects_not_used_for_the_longest_time_go_first(
    lowered: list[str], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(kernels(2))
    objects._object.cache_clear()
    for path in kept.iterdir():
        os.utime(path, ns=(0, 0))
    compiled(kernels(1))
    objects._object.cache_clear()
    monkeypatch.setattr(objects, "LIMIT_BYTES", sum(path.stat().st_size for path in kept.iterdir()) // 2 + 9)
    compiled(kernels(1))
    objects._object.cache_clear()
    assert len(list(kept.iterdir())) == 1
    lowered.clear()
    compiled(kernels(2))
    assert lowered == ["norm_2"]


def test_a_folder_that_cannot_be_written_keeps_nothing(lowered: list[str], kept: Path) -> None:
    kept.parent.write_text("a file")
    for _ in range(2):
        objects._object.cache_clear()
        compiled(kernels(1))
    assert lowered == ["norm_1", "norm_1"]


def test_an_object_has_a_kernel_that_checks_nothing_and_no_entry() -> None:
    (content,) = compiled(kernels(1))
    assert b"__tvm_ffi_norm_1\0" in content
    assert b"__tvm_ffi_main" not in content
    assert b"TVMFFIErrorSetRaised" not in content


@pytest.mark.in_turns(2)
def test_an_error_meanwhile_leaves_the_rest_uncompiled(
    monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    monkeypatch.setattr(objects, "usable_cores", lambda: 1)
    with pytest.raises(KeyboardInterrupt), objects.compiling(kernels(20), HOST):
        raise KeyboardInterrupt
    assert len(lowered) < 20
