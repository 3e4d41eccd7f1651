"""`make families`: which models of transformers compile, and compute the same.

    python -m tests.families [FAMILY …] [--tensors | --sources | --media] [--target ort | tvm | opencl]
                             [--quantize int8 | int4] [--markdown FILE]

They are the causal language models; with `--tensors` the encoders of pictures and sound of `tests/families/tensors.py`,
with `--sources` the encoder-decoders of `tests/families/sources.py`, with `--media` the models that read pictures or
sound among their tokens of `tests/families/media.py`.

Every family gets a process of its own, so that one which crashes or hangs ends nothing else. Prints a line a family,
then the counts; `--json FILE` writes the results so far after each, and `--known FILE` takes what such a file has
instead of a run; `--markdown FILE` writes the section of these families in the page. Exit code 1 if fewer than
`--least` families count.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.families.page import Kind, Outcome, read_outcomes, section, write_outcomes, write_section

if TYPE_CHECKING:
    from tests.families.check import Result

_MEMORY_BYTES = 12 << 30
"""Address space of one family's process: a config that no rule makes tiny must not take the machine down."""


def main() -> int:
    """Check the families named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="model types; all if none is named")
    parser.add_argument(
        "--target", choices=("ort", "tvm", "opencl"), default="ort", help="of all devices (default ort)"
    )
    parser.add_argument("--quantize", choices=("int8", "int4"), help="compare with the uncut model in this")
    parser.set_defaults(models="decoders")
    kinds = {
        "tensors": "encoders of pictures and sound",
        "sources": "encoder-decoders",
        "media": "models that read pictures or sound among their tokens",
    }
    for models, text in kinds.items():
        parser.add_argument(
            f"--{models}", dest="models", action="store_const", const=models, help=f"{text} instead"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        nargs="+",
        default=[],
        help="results of the same code: no new runs",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write them into this page")
    parser.add_argument("--jobs", type=int, default=2, help="families at once (default 2)")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="seconds a family may take")
    parser.add_argument("--least", type=int, default=75, help="families that must count (default 75)")
    options = parser.parse_args()
    kind = Kind(options.target, options.quantize, options.models)
    _load_libraries()
    families = options.families or _families(kind)
    known = {outcome.family: outcome for file in options.known for outcome in read_outcomes(file)}
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(
            lambda family: known.get(family) or _supervised(family, kind, options.limit), families
        )
        for outcome in runs:
            outcomes.append(outcome)
            if options.json:
                write_outcomes(options.json, outcomes)
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
        write_section(options.markdown, section(kind, outcomes, whole=not options.families))
    return 0 if counted >= min(options.least, len(families)) else 1


def _families(kind: Kind) -> list[str]:
    from tests.families import media, sources, tensors, tiny

    match kind.models:
        case "decoders":
            return tiny.causal_families()
        case "tensors":
            return list(tensors.FAMILIES)
        case "sources":
            return list(sources.FAMILIES)
        case "media":
            return list(media.FAMILIES)


def _load_libraries() -> None:
    """Import what every child needs once, before the first fork."""
    import torch

    import tests.families.check
    import tests.families.media
    import tests.families.sources
    import tests.families.tensors  # noqa: F401

    torch.set_num_threads(1)
    logging.disable(logging.ERROR)


def _supervised(family: str, kind: Kind, limit_s: float) -> Outcome:
    start = time.monotonic()
    fork: Any = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(family, kind, sender))
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


def _child(family: str, kind: Kind, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    with Path("/dev/null").open("w") as null:
        sys.stderr = null
        sender.send(_verdict(family, kind))


def _verdict(family: str, kind: Kind) -> tuple[str, str]:
    match kind.models:
        case "decoders":
            return _verdict_of_tokens(family, kind)
        case "tensors":
            return _verdict_of_tensors(family, kind)
        case "sources" | "media":
            return _verdict_of_answers(family, kind)


def _verdict_of_answers(family: str, kind: Kind) -> tuple[str, str]:
    from partc.errors import UserError
    from tests.families.media import check_media
    from tests.families.sources import check_source

    check = check_source if kind.models == "sources" else check_media
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = check(family, Path(folder), kind.target, kind.quantize)
        except UserError as error:
            return "refused", _line(error)
        except Exception as error:
            return "crashed", _line(error)
    if result.counts:
        return "counts", f"controls: {', '.join(result.controls)}"
    return "differs" if result.fault else "weak", result.detail


def _verdict_of_tensors(family: str, kind: Kind) -> tuple[str, str]:
    from partc.errors import UserError
    from tests.families.tensors import check_tensors

    with tempfile.TemporaryDirectory() as folder:
        try:
            result = check_tensors(family, Path(folder), kind.target, kind.quantize)
        except UserError as error:
            return "refused", _line(error)
        except Exception as error:
            return "crashed", _line(error)
    weak = [name for name, changed in result.controls.items() if not changed]
    if result.counts:
        return "counts", f"error {result.error:.1e}; controls: {', '.join(result.controls)}"
    return ("weak", f"unchanged without: {', '.join(weak)}") if weak else ("differs", result.detail)


def _verdict_of_tokens(family: str, kind: Kind) -> tuple[str, str]:
    from partc.errors import UserError
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
            result = _check(family, fields, Path(folder), kind)
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


def _check(family: str, fields: dict[str, Any], folder: Path, kind: Kind) -> Result:
    from tests.families.check import check_family
    from tests.families.quantized import check_quantized, import_tiny

    if kind.quantize:
        return check_quantized(import_tiny(family, fields, folder, kind.target), kind.quantize)
    # The controls judge the model and the prompts, not the target: those of `ort` hold for all.
    return check_family(family, fields, folder, target=kind.target, controls=kind.target == "ort")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


if __name__ == "__main__":
    sys.exit(main())
