"""loop.c to loop.ll: `python -m targets.tvm.loop.translate`, wherever loop.c was changed; needs the wheel `ziglang`.

loop.ll is kept in the repository, so that whoever compiles a model needs no C compiler. What would tie it to one
platform is taken out: the target, features of processors, and notes for optimisers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from partc.errors import UserError
from partc.scratch import scratch_folder
from targets.tvm.linker import zig
from targets.tvm.process import run_tool

FOLDER = Path(__file__).parent
_SECONDS = 120
_OPTIONS = (
    *("-target", "x86_64-linux-gnu", "-O1", "-fPIC", "-fno-strict-aliasing", "-fno-vectorize", "-fno-unroll-loops"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-discard-value-names"),
    *("-Wno-unused-command-line-argument", "-S", "-emit-llvm", "-g0"),
)  # fmt: skip
_DROPPED = re.compile(
    r"^(target |source_filename|; ModuleID|; Function Attrs|!).*\n"
    r"|,? !(llvm\.loop|srcloc|noundef) !\d+|, !\w+(\.\w+)* !\d+"
    r"|(?<= )(captures\(none\)|dso_local|local_unnamed_addr|unnamed_addr) ",
    re.MULTILINE,
)
_ATTRIBUTES = re.compile(r"^(attributes #\d+ = ).*$", re.MULTILINE)


def translate(source: Path) -> str:
    """The LLVM IR of a C file, for no platform in particular.

    Raises:
        UserError: there is no zig, or it failed; says what it printed.
    """
    compiler = zig()
    if compiler is None:
        raise UserError("loop.ll is made by zig, which is not found", hint="pip install ziglang")
    with scratch_folder("loop") as folder:
        made = folder / "loop.ll"
        problem = run_tool([compiler, "cc", *_OPTIONS, "-o", str(made), str(source)], _SECONDS).problem
        if problem:
            raise UserError(f"zig failed: {problem}", where=str(source))
        text = made.read_text()
    return _ATTRIBUTES.sub(r"\1{ nounwind }", _DROPPED.sub("", text)).strip() + "\n"


if __name__ == "__main__":
    (FOLDER / "loop.ll").write_text(translate(FOLDER / "loop.c"))
    sys.stdout.write("loop.ll is up to date\n")
