"""partc beside others on this machine: decode and prefill of random models, side by side in one run.

    python -m tests.bench.speed --folder /tmp/speed                        # everything; hours on two cores
    python -m tests.bench.speed --folder /tmp/speed --models 110M --threads 1 --formats int4 --rounds 3
    python -m tests.bench.speed --folder /tmp/speed --models 110M-mamba2,110M-delta --threads 1 --formats int4

Checkpoints, GGUF files, models of onnxruntime-genai and OpenVINO and bundles are made where they are missing and stay
in the folder: about 5 GB for 110M and 40 GB for 1.1B with all formats. Who is not installed is left out,
with a line that says how to change that. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from partc import __version__
from tests.bench.llamas import SHAPES
from tests.bench.random_models import MODELS
from tests.bench.speed.aims import Outcome, outcomes
from tests.bench.speed.contestants import CONTESTANTS
from tests.bench.speed.figures import Table, tabulate
from tests.bench.speed.machine import Machine, Watch
from tests.bench.speed.make import MakingError, ensure
from tests.bench.speed.places import FORMATS, Cell, forget_bundles
from tests.bench.speed.tables import document
from tests.bench.speed.turns import CONTEXTS, PHASES, requests, take_turns

PACKAGES = (
    "onnxruntime", "apache-tvm", "onnxruntime-genai", "openvino", "llama-cpp-python", "transformers", "torch", "numpy",
)  # fmt: skip


def main() -> None:
    """Make what is missing, measure, tell."""
    options = _parser().parse_args()
    names = options.only or list(CONTESTANTS)
    absent = _missing(names)
    names = [name for name in names if name not in absent]
    cells = [
        Cell((options.folder / model).resolve(), kind, threads, options.features, options.pages == "small")
        for model in options.models
        for kind in options.formats
        for threads in options.threads
    ]
    if options.fresh:
        for cell in cells:
            forget_bundles(cell)
    prepared = [(cell, *_prepare(cell, names)) for cell in cells]
    if options.make:
        return
    watch, tables = Watch(), []
    for cell, ready, unmade in prepared:
        print(f"measuring {cell.title}", file=sys.stderr, flush=True)
        taken = take_turns(cell, ready, requests(options.phases, options.contexts), options.rounds)
        taken.absent.update(unmade)
        tables.append(tabulate(cell, taken, options.clock))
    machine = watch.machine()
    aims = outcomes(tables)
    text = document(machine, versions(), tables, aims, absent, options.rounds)
    print(text)
    _write(options, text, machine, tables, aims)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, required=True, help="where models are kept")
    parser.add_argument("--models", type=_list_of(list(MODELS)), default=list(SHAPES))
    parser.add_argument("--threads", type=_numbers, default=[1, 2])
    parser.add_argument("--formats", type=_list_of(FORMATS), default=list(FORMATS))
    parser.add_argument("--phases", type=_list_of(PHASES), default=list(PHASES))
    parser.add_argument(
        "--contexts", type=_numbers, default=[128, 512],
        help=f"tokens before the one that decode is timed for, at most {max(CONTEXTS)} (default: 128,512)",
    )  # fmt: skip
    parser.add_argument(
        "--pages", choices=("huge", "small"), default="huge", help="small: no page has more than 4 KiB"
    )
    parser.add_argument(
        "--features", type=lambda text: tuple(filter(None, text.split(","))),
        help="features of the processor that partc on tvm may use, such as avx2 (default: all that it has)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only",
        type=_name,
        action="append",
        metavar="NAME",
        help="one contestant; repeatable (default: all)",
    )
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall",
        help="cpu: processor time, for one thread on a machine that is not idle",
    )  # fmt: skip
    parser.add_argument(
        "--fresh", action="store_true", help="compile bundles again; they are kept even if partc has changed"
    )
    parser.add_argument("--make", action="store_true", help="make what is missing and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures and all samples by both clocks")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG; needs matplotlib")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables, to paste")
    return parser


def _list_of(known: Sequence[str]) -> Any:
    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return names


def _numbers(text: str) -> list[int]:
    if not all(part.isdecimal() and int(part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, like 1,2")
    return [int(part) for part in text.split(",")]


def _name(text: str) -> str:
    if text not in CONTESTANTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(map(repr, CONTESTANTS))}")
    return text


def _missing(names: Sequence[str]) -> dict[str, str]:
    """Contestant → how to install it."""
    found = {}
    for name in names:
        if missing := CONTESTANTS[name].missing:
            found[name] = f"{', '.join(missing)} not installed; {CONTESTANTS[name].install}"
            print(f"left out: {name}: {found[name]}", file=sys.stderr)
    return found


def _prepare(cell: Cell, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The contestants that are ready in a cell, and those that could not be made, with the reason."""
    ready, unmade = [], {}
    for name in names:
        contestant = CONTESTANTS[name]
        if not contestant.takes_part(cell):
            continue
        try:
            ensure(contestant.files, cell)
            ready.append(name)
        except MakingError as error:
            unmade[name] = str(error)
            print(f"left out: {name}, {cell.kind}: {error}", file=sys.stderr)
    return ready, unmade


def versions() -> dict[str, str]:
    """Versions of all packages that take part."""
    found = {"partc": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _write(
    options: argparse.Namespace, text: str, machine: Machine, tables: Sequence[Table], aims: Sequence[Outcome]
) -> None:
    for path in filter(None, (options.json, options.plot, options.markdown)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        options.json.write_text(json.dumps(_report(machine, tables, aims), indent=1) + "\n")
    if options.plot:
        from tests.bench.speed.plot import draw

        draw(tables, options.plot)


def _report(machine: Machine, tables: Sequence[Table], aims: Sequence[Outcome]) -> Mapping[str, Any]:
    return {
        "machine": asdict(machine),
        "versions": versions(),
        "tables": [_table(table) for table in tables],
        "aims": [{**asdict(one), "met": one.met} for one in aims],
    }


def _table(table: Table) -> Mapping[str, Any]:
    cell = table.cell
    return {
        "model": cell.place.name,
        "kind": cell.kind,
        "threads": cell.threads,
        "features": cell.features,
        "small_pages": cell.small_pages,
        "clock": table.clock,
        "read_bytes": {context: table.read_bytes(table.reference, context) for context in table.contexts},
        "reference": table.reference,
        "contestants": {name: _contestant(table, name) for name in table.names},
        "samples": {
            name: {asked: [asdict(one) for one in samples] for asked, samples in found.items()}
            for name, found in table.samples.items()
        },
        "absent": table.absent,
    }


def _contestant(table: Table, name: str) -> Mapping[str, Any]:
    """For each request the seconds, and how many times as fast the reference is."""
    return {
        asked: {
            key: asdict(figure)
            for key, figure in (
                ("seconds", table.figure(name, asked)),
                ("partc_is", table.speed(table.reference, name, asked)),
                ("of_the_limit", table.of_the_limit(name, asked)),
            )
            if figure is not None
        }
        for asked in table.samples[name]
    }


if __name__ == "__main__":
    main()
