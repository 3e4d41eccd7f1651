"""Fuzzing of native/src: `python -m tests.native.fuzz [TARGET …] --seconds 60`.

Builds the preset `fuzz`, and runs each target from its corpus in native/fuzz/corpus under ASan and UBSan. An input that
makes a target crash stays in build/native/fuzz, and its path is printed. `--keep` puts inputs that reached new code
into the corpus, as many as fit.

The target `differential` has no file of its own: the readers of both runners get the same bytes
(`tests.native.differential`), the corpus of all others and mutants of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.native import differential
from tests.native.compiled import NATIVE, compile_native
from tests.native.seeds import write_seeds

CORPUS = NATIVE / "fuzz" / "corpus"
TARGETS = tuple(sorted(path.stem for path in (NATIVE / "fuzz").glob("*.cpp")))
"""A file of native/fuzz each."""
DIFFERENTIAL = "differential"
MOST_BYTES = 3000
"""Inputs are at most as long: valid ones are far shorter, and an input takes as long as it is."""
MOST_CORPUS_BYTES = 45_000
"""Bytes of the corpus of a target: it is replayed in every run, and travels with the source."""
_SECONDS_AN_INPUT = 10
_ENVIRONMENT = {
    # Stacks of allocations cost more than all the rest.
    "ASAN_OPTIONS": "malloc_context_size=3:quarantine_size_mb=16:allocator_may_return_null=1",
}


class Crashed(Exception):
    """A target crashed; the message is what it printed."""


def fuzz(folder: Path, target: str, limit: str, *, keeps: bool = False) -> str:
    """Run a target of the `folder` that it was built in, up to a limit of libFuzzer's such as `-max_total_time=60`.

    Returns:
        The figures that libFuzzer prints.

    Raises:
        Crashed: an input crashed it, took too long, or leaked.
    """
    corpus = CORPUS / target
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch, "found")
        found.mkdir()
        printed = _run(folder, target, limit, "-print_final_stats=1", str(found), str(corpus))
        if keeps:
            _merge(folder, target, Path(scratch, "merged"), [corpus, found])
    return "\n".join(line for line in printed.splitlines() if line.startswith("stat::") or "DONE" in line)


def reseed(folder: Path, target: str) -> None:
    """Put the seeds of `tests.native.seeds` into a corpus, where they reach code that nothing in it reaches."""
    with tempfile.TemporaryDirectory() as scratch:
        write_seeds(Path(scratch))
        _merge(folder, target, Path(scratch, "merged"), [CORPUS / target, Path(scratch, target)])


def _merge(folder: Path, target: str, merged: Path, folders: list[Path]) -> None:
    """Put inputs that reach code which those of the corpus do not reach into it, the smallest first, as many as fit."""
    merged.mkdir()
    places = [str(each) for each in folders if each.is_dir()]
    _run(folder, target, "-merge=1", "-use_counters=0", str(merged), *places)
    corpus = CORPUS / target
    corpus.mkdir(parents=True, exist_ok=True)
    known = {path.name for path in corpus.iterdir()}
    size = sum(path.stat().st_size for path in corpus.iterdir())
    for path in sorted(merged.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        size += 0 if path.name in known else path.stat().st_size
        if size < MOST_CORPUS_BYTES:
            (corpus / path.name).write_bytes(path.read_bytes())


def _run(folder: Path, target: str, *arguments: str) -> str:
    options = [
        f"-max_len={MOST_BYTES}",
        f"-timeout={_SECONDS_AN_INPUT}",
        f"-artifact_prefix={folder}/{target}-",
    ]
    done = subprocess.run(
        [str(folder / f"fuzz_{target}"), *options, *arguments],
        env={**os.environ, **_ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise Crashed(done.stdout[-8000:])
    return done.stdout


def main(words: list[str]) -> int:
    """Fuzz targets one after the other; 1 where one of them crashed."""
    parser = argparse.ArgumentParser(description="Fuzz the readers of native/src.")
    every = (*TARGETS, DIFFERENTIAL)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(every)}; all of them")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60)")
    parser.add_argument("--runs", type=int, help="inputs of each target, in place of a time")
    parser.add_argument(
        "--keep", action="store_true", help="put inputs that reached new code into the corpus"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the mutants of `differential` (1)")
    parser.add_argument("--reseed", action="store_true", help="put the seeds into the corpus, and do no more")
    given = parser.parse_args(words)
    return max([_attempt(target, given) for target in given.targets or every])


def _attempt(target: str, given: argparse.Namespace) -> int:
    """Do with a target what the command line says; 1 where it crashed, or the readers differ."""
    print(target, flush=True)
    try:
        if target == DIFFERENTIAL:
            print("" if given.reseed else _compared(given), flush=True)
        elif given.reseed:
            reseed(compile_native("fuzz"), target)
        else:
            limit = f"-runs={given.runs}" if given.runs else f"-max_total_time={given.seconds}"
            print(fuzz(compile_native("fuzz"), target, limit, keeps=given.keep), flush=True)
    except (Crashed, differential.Differs) as error:
        print(error, flush=True)
        return 1
    return 0


def _compared(given: argparse.Namespace) -> str:
    end = time.monotonic() + given.seconds

    def go_on(inputs: int) -> bool:
        return inputs < int(given.runs) if given.runs else time.monotonic() < end

    return differential.compare(compile_native("dev"), given.seed, go_on)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
