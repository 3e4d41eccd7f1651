"""Object files of kernels: the same from any thread, made once, with nothing besides the kernel."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tvm
pytest.importorskip("tvm")

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
    monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(objects, "usable_cores", lambda threads=threads: threads)
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


def test_an_object_has_a_kernel_that_checks_nothing_and_no_entry() -> None:
    (content,) = compiled(kernels(1))
    assert b"__tvm_ffi_norm_1\0" in content
    assert b"__tvm_ffi_main" not in content
    assert b"TVMFFIErrorSetRaised" not in content


def test_an_error_meanwhile_leaves_the_rest_uncompiled(
    monkeypatch: pytest.MonkeyPatch, lowered: list[str]
) -> None:
    monkeypatch.setattr(objects, "usable_cores", lambda: 1)
    with pytest.raises(KeyboardInterrupt), objects.compiling(kernels(20), HOST):
        raise KeyboardInterrupt
    assert len(lowered) < 20
