"""`make families`: which causal language models of transformers compile, and compute the same tokens.

Every family gets a process of its own, so that one which crashes or hangs ends nothing else. Prints a line a family,
then the counts; `--json FILE` writes the results. Exit code 1 if fewer than `--least` families count.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_MEMORY_BYTES = 12 << 30
"""Address space of one family's process: a config that no rule makes tiny must not take the machine down."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a family."""

    family: str
    verdict: str
    """counts | weak (a control changed nothing) | differs | refused | cannot be made tiny | crashed"""
    detail: str
    seconds: float


def main() -> int:
    """Check the families named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="model types; all if none is named")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write them there as a table")
    parser.add_argument("--jobs", type=int, default=2, help="families at once (default 2)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="seconds a family may take")
    parser.add_argument("--least", type=int, default=75, help="families that must count (default 75)")
    options = parser.parse_args()
    _load_libraries()
    from tests.families.tiny import causal_families

    families = options.families or causal_families()
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda family: _supervised(family, options.limit), families):
            outcomes.append(outcome)
            print(
                f"{outcome.family:28} {outcome.verdict:20} {outcome.seconds:5.0f} s  {outcome.detail[:300]}",
                flush=True,
            )
    counted = sum(outcome.verdict == "counts" for outcome in outcomes)
    made = sum(outcome.verdict != "cannot be made tiny" for outcome in outcomes)
    print(
        f"{counted} families count, of {made} that can be made tiny from a config, of {len(outcomes)} in all"
    )
    if options.markdown:
        options.markdown.write_text(_table(outcomes, made))
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    return 0 if counted >= min(options.least, len(families)) else 1


def _table(outcomes: Sequence[Outcome], made: int) -> str:
    """The results as a page: what counts in one paragraph, the rest with reasons."""
    import transformers

    counted = [outcome.family for outcome in outcomes if outcome.verdict == "counts"]
    text = f"""# Families

Of the {len(outcomes)} causal language models of transformers {transformers.__version__}, {made} can be made tiny from a
config by the rules of `tests/families/tiny.py`, and {len(counted)} of those are compiled for three devices with no code
of their own and give the tokens of transformers: 64 greedy tokens after prompts of 1, 7 and 33, alone and three
requests at once, with logits and every cut within 1e-4 of the largest value, and with all negative controls passed.
Written by `python -m tests.families --markdown docs/families.md`.

{", ".join(f"`{name}`" for name in counted)}.

| family | verdict | reason |
|---|---|---|
"""
    rest = [outcome for outcome in outcomes if outcome.verdict != "counts"]
    rows = [
        f"| `{o.family}` | {o.verdict} | {o.detail.split(' hint: ')[0][:160].replace('|', '/')} |"
        for o in rest
    ]
    return text + "\n".join(rows) + "\n"


def _load_libraries() -> None:
    """Import what every child needs once, before the first fork."""
    import torch

    import tests.families.check  # noqa: F401

    torch.set_num_threads(1)
    logging.disable(logging.ERROR)


def _supervised(family: str, limit_s: float) -> Outcome:
    start = time.monotonic()
    fork: Any = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(family, sender))
    process.start()
    sender.close()
    verdict, detail = "crashed", f"no answer in {limit_s:.0f} s"
    if receiver.poll(limit_s):
        try:
            verdict, detail = receiver.recv()
        except EOFError:
            detail = "the process ended"
    process.kill()
    process.join()
    return Outcome(family, verdict, detail, time.monotonic() - start)


def _child(family: str, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with Path("/dev/null").open("w") as null:
        sys.stderr = null
        sender.send(_verdict(family))


def _verdict(family: str) -> tuple[str, str]:
    from partc.errors import UserError
    from tests.families.check import check_family
    from tests.families.tiny import computes, tiny_config, tiny_model

    try:
        fields = tiny_config(family)
        parameters = computes(tiny_model(fields))
    except Exception as error:
        return "cannot be made tiny", _line(error)
    if parameters > 20_000_000:
        return "cannot be made tiny", f"{parameters} parameters"
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = check_family(family, fields, Path(folder))
        except UserError as error:
            return "refused", _line(error)
        except Exception as error:
            return "crashed", _line(error)
    if result.counts:
        return "counts", f"{result.parameters} parameters; controls: {', '.join(result.controls)}"
    if result.equal:
        return (
            "weak",
            f"unchanged without: {', '.join(name for name, changed in result.controls.items() if not changed)}",
        )
    return "differs", result.detail


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


if __name__ == "__main__":
    sys.exit(main())
