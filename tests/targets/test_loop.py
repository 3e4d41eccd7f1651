"""The loop of compiled libraries: its threads under a sanitizer, and its two texts, C and LLVM IR."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from partc.runtime.processor import architecture
from targets.tvm.loop import loop_ir, translate
from targets.tvm.machine import PLATFORMS, machine_of

FOLDER = Path(translate.__file__).parent
ROUNDS = "2000"


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no ziglang")
def test_the_ir_in_the_repository_is_that_of_the_source() -> None:
    made = translate.translate(FOLDER / "loop.c")
    assert made == (FOLDER / "loop.ll").read_text(), "python -m targets.tvm.loop.translate"


def test_the_ir_names_no_platform() -> None:
    text = (FOLDER / "loop.ll").read_text()
    assert not re.search(r"target|x86|aarch64|linux|metadata|!", text)
    called = set(re.findall(r"^declare .* @([\w.]+)\(", text, re.MULTILINE))
    assert {name for name in called if not name.startswith("llvm.")} == {"posix_memalign", "free", "syscall"}


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_has_its_number_of_futex(name: str) -> None:
    machine = machine_of("", name, (), "cpu", "")
    text = loop_ir(machine, b"\x00\xff")
    assert f"@partc_futex = hidden constant i64 {machine.platform.futex}\n" in text
    assert '@partc_kernels = constant [2 x i8] c"\\00\\ff"\n' in text
    assert "external" not in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_under_a_sanitizer(sanitizer: str, tmp_path: Path) -> None:
    """Every task runs once, whatever the threads do; they end, and others begin."""
    program = tmp_path / "threads"
    number = machine_of(architecture(), "", (), "cpu", "").platform.futex
    (tmp_path / "futex.c").write_text(f"const long partc_futex = {number};\n")
    options = ["-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    for source in (FOLDER / "loop.c", tmp_path / "futex.c"):
        compiled = ["gcc", "-c", *options, str(source), "-o", str(tmp_path / f"{source.stem}.o")]
        subprocess.run(compiled, check=True)
    objects = [str(tmp_path / name) for name in ("loop.o", "futex.o")]
    source = Path(__file__).with_name("loop_threads.cpp")
    subprocess.run(["g++", "-std=c++17", *options, str(source), *objects, "-o", str(program)], check=True)
    done = subprocess.run([str(program), ROUNDS], capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the sanitizer does not run on this kernel")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
