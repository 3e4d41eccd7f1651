"""What a message costs between two native processes: libzmq's transport beside the one that speaks ZMTP itself.

    python -m tests.bench.hop [--rounds 8] [--hops 400] [--bytes 8192] [--compute-us 300] [--prefix "chrt -f 5"]

Both ends are bound and connected, as devices of a ring; messages go to and fro over loopback with CURVE, and each end
computes before it sends. Rounds of all kinds take turns. `--prefix` starts the processes with another command:
`chrt -f 5` gives them the cores for themselves, which stands in for idle ones. Prints JSON: least, tenth and median
microseconds of a hop for each kind, over all rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from partc.format.codec import encode
from partc.format.message_parts import Row, TensorSpec
from partc.format.messages import Data
from partc.runtime.shell.keys import make_keys
from tests.bench.speed.machine import Watch
from tests.native.compiled import PRESET, compile_native

KINDS = ("zmq", "zmtp", "zmtp, spinning")


def main() -> None:
    """Build what is missing, measure, print JSON."""
    parser = argparse.ArgumentParser(description="A hop between two native processes.")
    parser.add_argument("--rounds", type=int, default=8, help="turns of every kind (8)")
    parser.add_argument("--hops", type=int, default=400, help="messages of a turn (400)")
    parser.add_argument("--bytes", type=int, default=8192, help="of the frame of a message (8192)")
    parser.add_argument("--compute-us", type=int, default=300, help="of computing before each send (300)")
    parser.add_argument("--prefix", default="", help="a command that starts the processes")
    options = parser.parse_args()
    program = compile_native(PRESET) / "hop"
    watch = Watch()
    hops: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        make_keys(Path(folder), ["phone", "board"], "phone")
        for _, kind in itertools.product(range(options.rounds), KINDS):
            settings = {
                "header": header(options.bytes).hex(),
                "bytes": options.bytes,
                "hops": options.hops,
                "compute_us": options.compute_us,
                "spins": "spinning" in kind,
            }
            prefix = shlex.split(options.prefix)
            hops[kind] += measured([*prefix, str(program)], Path(folder), kind.partition(",")[0], settings)
    report: dict[str, object] = {kind: figures(found) for kind, found in hops.items()}
    report["header_bytes"] = len(header(options.bytes))
    report["machine"] = watch.machine().sentence
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


def header(size: int) -> bytes:
    """The header of a decode step of one request."""
    return encode(
        Data(
            session=2**60 + 1,
            epoch=3,
            seq=1000,
            phase="decode",
            dims={"batch": 1, "past": 100, "sequence": 1},
            rows=(Row(1_760_000_000_000, 0, 100, 100, 1),),
            values=(TensorSpec("model.layers.11.output", "float32", (1, 1, size // 4)),),
        )
    )


def measured(command: list[str], folder: Path, kind: str, settings: dict[str, object]) -> list[float]:
    """Microseconds of each hop of a turn."""
    env = {**os.environ, "PARTC_TRANSPORT": kind}
    names = ("phone", "board")
    ends = [
        subprocess.Popen(
            [*command, str(folder / "devices" / name), other, json.dumps({**settings, "begins": name == "phone"})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )
        for name, other in (names, names[::-1])
    ]  # fmt: skip
    addresses = [_line_of(end) for end in ends]
    for end, address in zip(ends, reversed(addresses), strict=True):
        _tell(end, address)
    for end in ends:
        assert _line_of(end) == "connected"
    for end in ends:
        _tell(end, "")
    printed, *_ = [end.communicate(timeout=120)[0] for end in ends]
    return [float(each) for each in printed.split()]


def figures(hops: list[float]) -> dict[str, float]:
    """The least, the tenth and the middle one."""
    ordered = sorted(hops)
    return {
        "least": ordered[0],
        "tenth": ordered[len(ordered) // 10],
        "median": round(statistics.median(ordered), 1),
    }


def _line_of(end: subprocess.Popen[str]) -> str:
    assert end.stdout
    return end.stdout.readline().strip()


def _tell(end: subprocess.Popen[str], line: str) -> None:
    assert end.stdin
    end.stdin.write(line + "\n")
    end.stdin.flush()


if __name__ == "__main__":
    main()
