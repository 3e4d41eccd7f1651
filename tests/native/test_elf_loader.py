"""The loader of compiled libraries beside the system's, and on libraries that are damaged."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from targets.tvm import link
from tests.native.conftest import Program

pytestmark = pytest.mark.native

LIBRARY = """
double cos(double), sqrt(double);
extern int absent_everywhere __attribute__((weak));
static double counter = 40;
double *const volatile pointer = &counter;
double cosine(double x) { return cos(x); }
double root(double x) { return sqrt(x); }
double (*table[])(double) = {cosine, root};
double (*volatile foreign)(double) = cos;
double through_a_pointer(double x) { return *pointer + x; }
double through_a_table(double x) { return table[1](x) + foreign(x); }
double count(double x) { return counter += x; }
double weak_is_null(double x) { return &absent_everywhere ? 0 : x; }
"""
CALLS = ("cosine", "through_a_pointer", "through_a_table", "count", "count", "weak_is_null")


@pytest.fixture(scope="session")
def library(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    source, path = folder / "library.c", folder / "library.so"
    source.write_text(LIBRARY)
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or "cc"
    command = [compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", str(source), "-o", str(path), "-lm"]
    subprocess.run(command, check=True)
    return path


def test_functions_are_those_of_the_systems_loader(program: Program, library: Path) -> None:
    code = ctypes.CDLL(str(library))
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    expected = [kind((name, code))(3.0) for name in CALLS]
    *found, last = program("elf_loader", "call", library).splitlines()
    assert [float(text) for text in found] == expected
    assert expected[3] != expected[4], "the library's data change"
    assert last == "1 1", "a symbol that is absent, or too short, is none"


def test_damaged_libraries_do_no_harm(program: Program, library: Path) -> None:
    taken, refused = map(int, program("elf_loader", "mutants", library, "3000").split())
    assert taken + refused == 3000
    assert taken > 100 and refused > 100


@pytest.mark.tvm
def test_everything_that_libraries_may_need_is_there(program: Program) -> None:
    names = sorted(link._LIBC | link._LIBM)
    assert program("elf_loader", "supplied", *names) == ""
    assert program("elf_loader", "supplied", "cos", "system") == "system\n"


def test_another_processors_library_is_refused(built: Path, library: Path, tmp_path: Path) -> None:
    content = bytearray(library.read_bytes())
    content[18] ^= 0xFF  # e_machine
    (tmp_path / "other.so").write_bytes(content)
    command = [str(built / "elf_loader"), "call", str(tmp_path / "other.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "other.so: it cannot be loaded: it is for another processor" in done.stderr
