"""Tools and machines of the tvm target: what is found, what is missing, and what a library has inside."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from partc.errors import ConfigError, InternalError, UserError
from partc.ir.graph import ModelInfo
from targets.tvm import TvmTarget, linker, toolchain
from targets.tvm.machine import PLATFORMS, Machine, machine_of

pytestmark = pytest.mark.tvm
tvm = pytest.importorskip("tvm")

from targets.tvm.elf import AARCH64, X86_64, Elf, read_elf  # noqa: E402
from targets.tvm.link import build_kernels, check_symbols  # noqa: E402
from targets.tvm.linker import Linker, find_linker  # noqa: E402
from targets.tvm.process import run_tool  # noqa: E402
from targets.tvm.toolchain import Toolchain, find_nvcc, find_toolchain  # noqa: E402

needs_lld = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no ziglang")

ANDROID, ARM, HOST = "aarch64-linux-android", "aarch64-linux-gnu", "x86_64-linux"
GNU_ARM = "aarch64-linux-gnu-gcc (GCC) 12.2.0"


def _machine(platform: str, features: Sequence[str] = (), cuda: str = "") -> Machine:
    return machine_of("", platform, features, "cuda" if cuda else "cpu", cuda)


def _program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _compiler(folder: Path, name: str, triple: str, version: str = "gcc 12") -> Path:
    """A program that says it is a compiler for `triple`, and makes libraries of it without content."""
    processor = AARCH64 if "aarch64" in triple else X86_64
    return _program(
        folder,
        name,
        f'[ "$1" = -dumpmachine ] && echo {triple} && exit\n[ "$1" = --version ] && echo "{version}" && exit\n'
        + _makes(folder, processor),
    )


def _makes(folder: Path, processor: int) -> str:
    """What a script does to write the header of an ELF file of that machine to the file after `-o`."""
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / f"{processor}.so"
    header.write_bytes(b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HH", 3, processor) + bytes(44))
    return f'while [ "$1" != -o ]; do shift; done; /bin/cat {header} > "$2"'


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without any tool, none of which has been tried; the folder is its path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in (*linker.NDK_VARIABLES, "NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in PLATFORMS:
        monkeypatch.delenv(f"PARTC_LINKER_{name.upper().replace('-', '_')}", raising=False)
    monkeypatch.setattr(linker, "zig", lambda: None)
    monkeypatch.setattr(toolchain, "CUDA_FOLDER", str(tmp_path / "no-cuda"))
    find_toolchain.cache_clear()
    yield folder
    find_toolchain.cache_clear()


# Options


@pytest.mark.parametrize("name", PLATFORMS)
def test_llvm_knows_every_feature(name: str) -> None:
    from tvm.target.codegen import llvm_get_cpu_features

    words = {word.removeprefix("+") for words in PLATFORMS[name].features.values() for word in words}
    enabled = llvm_get_cpu_features(_machine(name, list(PLATFORMS[name].features)).target())
    assert words <= {str(feature) for feature in enabled}, "LLVM drops what it does not know"


def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="has no feature 'dotprud'") as unknown:
        _machine(ARM, ["dotprud"])
    assert "did you mean 'dotprod'" in str(unknown.value)
    with pytest.raises(ConfigError, match="x86_64-linux has no feature 'neon'"):
        _machine(HOST, ["neon"])
    with pytest.raises(ConfigError, match="no platform 'armv7'"):
        machine_of("armv7", "", (), "cpu", "")
    with pytest.raises(ConfigError, match="no provider 'xnnpack'"):
        machine_of("x86_64", "", (), "xnnpack", "")
    with pytest.raises(ConfigError, match="'orin' is no architecture of a GPU"):
        _machine(ARM, cuda="orin")
    with pytest.raises(ConfigError, match="'sm_1' is no architecture of a GPU"):
        machine_of("x86_64", "", (), "cpu", "sm_1")
    with pytest.raises(ConfigError, match="the device is x86_64, and aarch64-linux-android is not"):
        machine_of("x86_64", ANDROID, (), "cpu", "")


def test_the_target_checks_its_tools_before_anything_else(bare: Path) -> None:
    with pytest.raises(ConfigError, match="no linker for aarch64-linux-gnu"):
        TvmTarget(arch="aarch64").check()
    with pytest.raises(ConfigError, match="no linker for aarch64-linux-gnu"):
        TvmTarget(arch="aarch64").lower([], ModelInfo("m", "text-generation"))
    TvmTarget(arch="aarch64", linker=str(_compiler(bare, "mine", "aarch64-linux-gnu"))).check()


# Linkers


@pytest.mark.parametrize(
    ("platform", "remedies"),
    [
        (HOST, ["pip install ziglang", "apt-get install gcc-x86-64-linux-gnu", "PARTC_LINKER_X86_64_LINUX"]),
        (
            ARM,
            [
                "pip install ziglang",
                "apt-get install gcc-aarch64-linux-gnu",
                "PARTC_LINKER_AARCH64_LINUX_GNU",
            ],
        ),
        (ANDROID, ["pip install ziglang", "set ANDROID_NDK_HOME", "PARTC_LINKER_AARCH64_LINUX_ANDROID"]),
    ],
)
def test_a_missing_linker_comes_with_its_remedies(bare: Path, platform: str, remedies: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"no linker for {platform}") as missing:
        find_linker(_machine(platform))
    assert all(remedy in str(missing.value) for remedy in remedies)


def test_a_compiler_for_another_machine_is_passed_over(bare: Path) -> None:
    _compiler(bare, "gcc", "x86_64-linux-gnu")
    with pytest.raises(ConfigError, match="no linker"):
        find_linker(_machine(ARM))
    cross = _compiler(bare, "aarch64-linux-gnu-gcc", "aarch64-linux-gnu", GNU_ARM)
    assert find_linker(_machine(ARM)) == Linker((str(cross),), False, GNU_ARM)
    assert find_linker(_machine(HOST)).command == (str(bare / "gcc"),)


def test_lld_stands_in_for_all(bare: Path) -> None:
    script = '[ "$1" = --version ] && echo "LLD 19.1.0 (compatible with GNU linkers)" && exit\n'
    for_arm, other = (_makes(bare, processor) for processor in (AARCH64, X86_64))
    lld = _program(bare, "ld.lld", f'{script}if [ "$2" = aarch64linux ]; then {for_arm}; else {other}; fi')
    for platform in PLATFORMS:
        found = find_linker(_machine(platform))
        assert (found.command, found.is_lld) == ((str(lld),), True)


def test_the_option_comes_before_the_variable(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _compiler(bare, "first", "aarch64-linux-gnu")
    second = _compiler(bare, "second", "aarch64-linux-gnu")
    monkeypatch.setenv("PARTC_LINKER_AARCH64_LINUX_GNU", str(second))
    assert find_linker(_machine(ARM)).command == (str(second),)
    assert find_linker(_machine(ARM), str(first)).command == (str(first),)


def test_a_linker_that_does_not_fit_is_refused(bare: Path) -> None:
    other = _compiler(bare, "mine", "x86_64-linux-gnu")
    with pytest.raises(ConfigError, match="links for x86_64-linux-gnu, not for aarch64-unknown-linux-gnu"):
        find_linker(_machine(ARM), str(other))
    with pytest.raises(ConfigError, match=r"linker: .*nowhere: cannot be run"):
        find_linker(_machine(ARM), str(bare / "nowhere"))
    plain = _program(bare, "ld", '[ "$1" = --version ] && echo "GNU ld 2.40"')
    with pytest.raises(ConfigError, match=r"is no compiler and no lld \(GNU ld 2.40\)"):
        find_linker(_machine(ARM), str(plain))
    gnu = _compiler(bare, "gnu", "aarch64-linux-gnu")
    with pytest.raises(ConfigError, match="not for aarch64-linux-android24"):
        find_linker(_machine(ANDROID), str(gnu))


def test_a_linker_that_links_nothing_is_found_out_before_work_begins(bare: Path) -> None:
    """A cross compiler without the C library of its platform, for instance, or `gcc -m32`."""
    asked = '[ "$1" = -dumpmachine ] && echo aarch64-linux-gnu && exit\n[ "$1" = --version ] && echo gcc && exit\n'
    poor = _program(bare, "aarch64-linux-gnu-gcc", f"{asked}echo 'cannot find -lm'; exit 1")
    with pytest.raises(ConfigError, match=r"linker: .*the linker failed: cannot find -lm"):
        find_linker(_machine(ARM), str(poor))
    with pytest.raises(ConfigError, match=r"no linker for(.|\n)*gcc: the linker failed: cannot find -lm"):
        find_linker(_machine(ARM))
    other = _program(bare, "other", f"{asked}{_makes(bare, X86_64)}")
    lazy = _program(bare, "lazy", f"{asked}exit 0")
    for command in (other, lazy):
        with pytest.raises(ConfigError, match="makes no libraries for aarch64-unknown-linux-gnu"):
            find_linker(_machine(ARM), str(command))
    mine = _compiler(bare, "cc", "aarch64-linux-gnu")
    assert find_linker(_machine(ARM)).command == (str(mine),)


@pytest.mark.parametrize(("named", "problem"), [("'gcc", "No closing quotation"), (" ", "is no command")])
def test_a_command_that_is_none(bare: Path, named: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"linker: .*{problem}"):
        find_linker(_machine(ARM), named)
    with pytest.raises(ConfigError, match=f"nvcc: .*{problem}"):
        find_nvcc("sm_87", named)


def test_a_tool_that_hangs_ends_with_all_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = _program(tmp_path, "hangs", f"sleep 1000 &\necho $! > {started}\nwait")
    for seconds in (1, 8, 64):  # a busy machine may not have come as far as `sleep`
        assert run_tool([str(script)], seconds).problem == f"did not end within {seconds} s, and was ended"
        if started.exists() and (process := started.read_text().strip()):
            break
    assert _ends(int(process), 60)


def _ends(process: int, seconds: float) -> bool:
    """Whether a process that was killed is gone, or waits for its parent alone, within so many seconds."""
    state, end = Path(f"/proc/{process}/stat"), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if state.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_what_a_tool_prints_need_not_be_text(tmp_path: Path) -> None:
    result = run_tool([str(_program(tmp_path, "prints", "printf '\\377 1\\n2'; exit 3"))], 60)
    assert (result.problem, result.first_line) == ("\ufffd 1\n2", "\ufffd 1")


def test_the_ndk_is_found_by_its_variable(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ndk = tmp_path / "ndk"
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(ndk))
    with pytest.raises(ConfigError, match=r"ANDROID_NDK_ROOT: .*ndk has no toolchains/llvm"):
        find_linker(_machine(ANDROID))
    name = "aarch64-linux-android24-clang"
    version = "Android clang version 18.0.1"
    clang = _compiler(
        ndk / "toolchains/llvm/prebuilt/linux-x86_64/bin", name, "aarch64-unknown-linux-android24", version
    )
    assert find_linker(_machine(ANDROID)) == Linker((str(clang),), False, version)


# nvcc


def test_a_missing_nvcc_comes_with_its_remedy(bare: Path) -> None:
    with pytest.raises(ConfigError, match="needs nvcc, which is not found") as missing:
        find_toolchain(_machine(HOST, cuda="sm_87"))
    assert "install the CUDA toolkit" in str(missing.value)
    _compiler(bare, "gcc", "x86_64-linux-gnu")
    assert find_toolchain(_machine(HOST)).nvcc is None


def test_source_takes_no_tool_at_all(bare: Path) -> None:
    """The device compiles it."""
    assert find_toolchain(machine_of("", ARM, (), "opencl", "")) == Toolchain()


def test_an_nvcc_that_does_not_know_the_gpu_or_finds_no_compiler(bare: Path) -> None:
    says = '[ "$1" = --version ] && echo "Cuda compilation tools, release 12.4" && exit\n'
    knows = says + '[ "$1" = --list-gpu-code ] && echo "sm_75 sm_87" && exit\n'
    _program(bare, "nvcc", f"{knows}echo 'nvcc fatal : gcc: not found'; exit 1")
    with pytest.raises(ConfigError, match="has no sm_53") as old:
        find_nvcc("sm_53")
    assert "sm_75, sm_87" in str(old.value)
    with pytest.raises(
        ConfigError, match="cannot compile an empty kernel for sm_87: nvcc fatal : gcc: not found"
    ):
        find_nvcc("sm_87")
    _program(bare, "nvcc", f"{says}echo 'nvcc fatal : unknown option'; exit 1")
    with pytest.raises(ConfigError, match=r"nvcc fatal : unknown option \(Cuda .* release 12.4\)"):
        find_nvcc("sm_87")
    _program(bare, "nvcc", f"{knows}exit 0")
    with pytest.raises(ConfigError, match="it wrote nothing"):
        find_nvcc("sm_87")
    _program(bare, "nvcc", "echo gcc 12")
    with pytest.raises(ConfigError, match=r"is no nvcc \(gcc 12\)"):
        find_nvcc("sm_87")


def test_tools_that_work_are_tried_once(bare: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    says = '[ "$1" = --version ] && echo "Cuda compilation tools, release 12.4" && exit\n'
    knows = '[ "$1" = --list-gpu-code ] && echo "sm_75 sm_87" && exit\n'
    _program(bare, "nvcc", f"echo $1 >> {calls}\n{says}{knows}{_makes(tmp_path / 'made', 190)}")
    found = find_toolchain(_machine(HOST, cuda="sm_87"))
    assert found.linker is None
    assert find_toolchain(_machine(HOST, cuda="sm_87")) is found
    assert calls.read_text().split() == ["--version", "--list-gpu-code", "-arch=sm_87"]
    find_nvcc("sm_75")
    assert calls.read_text().split()[3:] == ["--version", "--list-gpu-code", "-arch=sm_75"], "another GPU is"


# Libraries


@pytest.fixture(scope="module")
def module() -> Any:
    """softmax(x · yᵀ), and a state that is written to in place."""
    from tvm import relax

    from targets.tvm.operators.attention import write_rows

    op, kind, state = (
        relax.op,
        relax.TensorType([16, 64], "float32"),
        relax.TensorType([1, 2, 8, 4], "float32"),
    )
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", kind), relax.Var("y", kind)
    cache = relax.Var("cache", state)
    new = relax.Var("new", relax.TensorType([1, 2, 1, 4], "float32"))
    position = relax.Var("position", relax.TensorType([1], "int64"))
    write = builder.add_func(write_rows(1, 2, 8, 4, 1, "float32", "float32"), "write_rows")
    with builder.function("main", [x, y, cache, new, position]):
        with builder.dataflow():
            scores = builder.emit(op.nn.softmax(builder.emit(op.matmul(x, op.permute_dims(y)))))
            kept = builder.emit(op.call_tir_inplace(write, [cache, new, position], [0], state))
            results = builder.emit_output(relax.Tuple([scores, builder.emit(op.sum(kept))]))
        builder.emit_func_output(results)
    return builder.finalize()


def _linked(module: Any, machine: Machine, named: str, folder: Path) -> bytes:
    path, tools = folder / "library.so", find_toolchain(machine, named)
    build_kernels(module, ["main"], machine, tools, path)
    return path.read_bytes()


def _lld() -> str:
    return f"{linker.zig()} ld.lld"


@needs_lld
@pytest.mark.parametrize(
    ("platform", "processor", "needed"),
    [
        (ANDROID, AARCH64, ("libm.so", "libc.so")),
        (ARM, AARCH64, ("libm.so.6", "libc.so.6")),
        (HOST, X86_64, ("libm.so.6", "libc.so.6")),
    ],
)
def test_lld_links_for_every_platform(
    module: Any, platform: str, processor: int, needed: tuple[str, ...], tmp_path: Path
) -> None:
    machine = _machine(platform, ["dotprod"] if processor == AARCH64 else ["avx2"])
    library = _linked(module, machine, _lld(), tmp_path)
    elf = read_elf(library)
    assert (elf.machine, set(elf.needed)) == (processor, set(needed))
    assert elf.undefined <= {"exp", "memset", "memcpy", "memmove", "posix_memalign", "free", "syscall"}
    assert not [name for name in elf.sections if name.startswith((".debug", ".symtab"))]
    assert str(tmp_path).encode() not in library
    assert b"/tmp" not in library
    assert library == _linked(module, machine, _lld(), tmp_path), "the same bytes twice"


def test_the_linker_of_this_machine(module: Any, tmp_path: Path) -> None:
    library = _linked(module, _machine(HOST), "", tmp_path)
    assert read_elf(library).machine == X86_64
    assert library == _linked(module, _machine(HOST), "", tmp_path)


def test_a_library_with_foreign_symbols_is_no_library() -> None:
    known = frozenset({"expf", "erf", "memcpy", "syscall"})
    check_symbols(Elf(X86_64, 0, (), (), known))
    with pytest.raises(InternalError, match="needs TVMFFIErrorSetRaised, which no device has"):
        check_symbols(Elf(X86_64, 0, (), (), known | {"TVMFFIErrorSetRaised"}))
    with pytest.raises(InternalError, match="needs cblas_sgemm, dgemm, which no device has"):
        check_symbols(Elf(X86_64, 0, (), (), frozenset({"expf", "dgemm", "cblas_sgemm"})))


def test_a_linker_that_fails_leaves_nothing_behind(module: Any, tmp_path: Path) -> None:
    broken = _program(tmp_path, "cc", "echo 'no space left'; exit 1")
    tools = Toolchain(Linker((str(broken),), False, ""))
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(UserError, match="the linker failed: no space left"):
        build_kernels(module, ["main"], _machine(HOST), tools, folder / "library.so")
    assert list(folder.iterdir()) == []


def test_other_work_is_done_while_kernels_are_compiled(module: Any, tmp_path: Path) -> None:
    path, done = tmp_path / "library.so", []
    tools = find_toolchain(_machine(HOST), "")
    build_kernels(module, ["main"], _machine(HOST), tools, path, lambda: done.append(path.exists()))
    assert done == [False] and path.exists()
    path.unlink()
    with pytest.raises(ZeroDivisionError):
        build_kernels(module, ["main"], _machine(HOST), tools, path, lambda: 1 / 0)
    assert not path.exists()


def test_too_little_room_for_scratch_files_is_an_error_and_not_the_end_of_the_process(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=40_000)
    monkeypatch.setattr("targets.tvm.link.shutil.disk_usage", lambda folder: full)
    with pytest.raises(UserError, match="no room for scratch files"):
        tools = Toolchain(Linker(("gcc",), False, ""))
        build_kernels(module, ["main"], _machine(HOST), tools, tmp_path / "library.so")


def test_a_limit_of_files_is_an_error_and_not_the_end_of_the_process(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("targets.tvm.link.resource.getrlimit", lambda kind: (153_600, -1))
    with pytest.raises(UserError, match=r"files may have 0\.2 MB"):
        build_kernels(
            module,
            ["main"],
            _machine(HOST),
            Toolchain(Linker(("gcc",), False, "")),
            tmp_path / "library.so",
        )
