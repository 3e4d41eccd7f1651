"""Clients of an endpoint at once, and the second turn of a conversation, measured over HTTP.

    python -m tests.bench.serving --folder /tmp/serving [--llama-server PATH --gguf FILE] [--json OUT]
    python -m tests.bench.serving --folder /tmp/serving --build BUILD

Starts `partc serve` for a Llama of 110M random weights in int4 (target tvm) on one device and on a ring of three, as
local processes on the same cores, or for `--build` alone; beside them llama.cpp's server with the same number of
slots, on the same cores. 1, 4 and 16 clients at once ask for answer after answer, each with a prompt of its own. All
servers stand meanwhile and take turns: a machine may change its speed. A ratio is taken within its round.

Figures are tokens per second of all clients (median over rounds, least and most), time to the first token and from
token to token (median and 99th percentile over all rounds), and the most tokens of a client over the least. Then a
prompt of `--turn` tokens is answered, and what follows it as the next turn, with the rows of the first and without
(`deterministic`). Builds and checkpoint stay in the folder. `python -m tests.bench.speed.gguf_file` writes GGUF files
of its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from partc.format.role import source_role
from tests.bench.serving.builds import RINGS, build
from tests.bench.serving.servers import llama_server, partc_server
from tests.bench.serving.streams import Endpoint, Load, Seen, seen_by
from tests.bench.speed.machine import Watch

LLAMA = "llama.cpp"
RUNNERS = ("native", "python")
_TURNS = 5

Rounds = Mapping[str, Mapping[int, Sequence[Seen]]]
"""Server → clients → what they saw in each round."""


def main() -> None:
    """Make what is missing, serve, measure, print."""
    options = _options()
    watch = Watch()
    builds = {options.build.name: options.build} if options.build else {
        ring: build(options.folder, ring, options.slots, options.threads) for ring in options.rings
    }  # fmt: skip
    with ExitStack() as stack:
        servers = {
            f"{name}, {runner}": stack.enter_context(partc_server(path, runner))
            for name, path in builds.items()
            for runner in options.runners
        }
        ours = list(servers)
        if options.llama_server:
            model = source_role(next(iter(builds.values()))).model
            servers[LLAMA] = stack.enter_context(
                llama_server(options.llama_server, options.gguf, model, options.threads)
            )
        found = _rounds(servers, options)
        turns = {name: _second_turn(servers[name], options.turn) for name in ours if options.turn}
    machine = watch.machine().sentence
    print(_table(found))
    for name, turn in turns.items():
        print(f"- {name}, second turn behind {turn['tokens']} tokens: first token {turn['kept_ms']} ms, "
              f"without the rows of the first {turn['anew_ms']} ms ({turn['ratio']})")  # fmt: skip
    print(f"\nMachine: {machine}.")
    if options.json:
        report = {"servers": _json(found), "second_turn": turns, "machine": machine}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.serving", description="Clients of an endpoint, and a second turn."
    )
    parser.add_argument("--folder", type=Path, required=True, help="for builds")
    parser.add_argument("--build", type=Path, help="serve this one alone")
    parser.add_argument("--rings", nargs="+", choices=RINGS, default=list(RINGS), help="rings to serve (all)")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="the program llama-server")
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="its model")
    parser.add_argument(
        "--runners", nargs="+", choices=RUNNERS, default=list(RUNNERS), help="of the devices (native python)"
    )
    parser.add_argument("--slots", type=int, default=16, help="requests at once (16)")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--threads",
        type=int,
        default=cores,
        help="of one device and of llama.cpp; a ring has one each (all cores)",
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16], help="clients at once (1 4 16)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load that count (8)")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds before (2)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt (64)")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each answer (64)")
    parser.add_argument("--turn", type=int, default=400, help="tokens before the second turn; 0: none (400)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures there, too")
    options = parser.parse_args()
    if (options.llama_server is None) != (options.gguf is None):
        parser.error("--llama-server goes with --gguf")
    return options


def _rounds(servers: Mapping[str, Endpoint], options: argparse.Namespace) -> Rounds:
    """All loads of all servers, round by round; each round begins with another server."""
    load = Load(options.prompt, options.tokens, options.warm, options.seconds)
    found: dict[str, dict[int, list[Seen]]] = {
        name: {many: [] for many in options.clients} for name in servers
    }
    for endpoint in servers.values():
        endpoint.stream(endpoint.prompt(load.prompt), load.tokens)  # nothing is cold
    names = list(servers)
    for number in range(options.rounds):
        begin = number % len(names)
        for many in options.clients:
            for name in names[begin:] + names[:begin]:
                seen = seen_by(servers[name], many, load)
                print(
                    f"round {number + 1}: {name}, {many}: {seen.tokens_per_s:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
                found[name][many].append(seen)
    return found


def _second_turn(endpoint: Endpoint, tokens: int) -> dict[str, float]:
    """Time to the first token of a turn behind `tokens` tokens, with their rows and without."""
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_TURNS):
        first = endpoint.prompt(tokens)
        second = [*first, *endpoint.prompt(16)]
        endpoint.stream(first, 1)
        for alone in (False, True):
            stream = endpoint.stream(second, 1, deterministic=alone)
            taken[alone].append(stream.came[0] - stream.begun)
    kept, anew = statistics.median(taken[False]), statistics.median(taken[True])
    return {"tokens": tokens, "kept_ms": _ms(kept), "anew_ms": _ms(anew), "ratio": round(kept / anew, 3)}


def _table(found: Rounds) -> str:
    """The figures as a table of Markdown."""
    lines = [
        "| clients | server | tokens/s | × llama.cpp | first token, ms: median, 99% | from token to token, ms: median, "
        "99% | most over least |",
        "|---|---|---|---|---|---|---|",
    ]
    for many in next(iter(found.values())):
        for name, loads in found.items():
            figures, ratio = _figures(loads[many]), _ratio(found, name, many)
            lines.append(
                f"| {many} | {name} | {_spread([seen.tokens_per_s for seen in loads[many]], 1)} | {ratio} "
                f"| {figures['first_ms_median']}, {figures['first_ms_99']} "
                f"| {figures['between_ms_median']}, {figures['between_ms_99']} | {figures['most_over_least']} |"
            )
    return "\n".join(lines)


def _ratio(found: Rounds, name: str, many: int) -> str:
    if LLAMA not in found:
        return ""
    pairs = zip(found[name][many], found[LLAMA][many], strict=True)
    return _spread([ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs], 2)


def _figures(rounds: Sequence[Seen]) -> dict[str, float]:
    first = [taken for seen in rounds for taken in seen.first_s]
    between = [taken for seen in rounds for taken in seen.between_s]
    return {
        "first_ms_median": _ms(_at(first, 0.5)),
        "first_ms_99": _ms(_at(first, 0.99)),
        "between_ms_median": _ms(_at(between, 0.5)),
        "between_ms_99": _ms(_at(between, 0.99)),
        "most_over_least": round(max(max(seen.tokens) / max(1, min(seen.tokens)) for seen in rounds), 2),
    }


def _json(found: Rounds) -> dict[str, Any]:
    return {
        name: {
            str(many): {"tokens_per_s": [round(seen.tokens_per_s, 1) for seen in rounds], **_figures(rounds)}
            for many, rounds in loads.items()
        }
        for name, loads in found.items()
    }


def _spread(values: Sequence[float], digits: int) -> str:
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} [{least:.{digits}f} – {most:.{digits}f}]"


def _at(values: Sequence[float], share: float) -> float:
    """The value that this share of all is below; not a number where there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


if __name__ == "__main__":
    main()
