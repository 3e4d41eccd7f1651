"""Many requests to one ring: whether the memory of its runners, and their open files, stay what they are.

    python -m tests.living.soak build/storyteller --native build/native/dev/partc-runner --tokens 50000

Requests of every kind take turns: short and long prompts, drawn tokens, batches, three in flight, cancelled ones,
traces, and a new client every eight requests. The first tenth of the tokens is to warm up; after it a runner may grow
by `MOST_BYTES`, and must have no more open files than then. The exit code is 1 where one does not keep to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from partc.format.message_parts import Sampling
from partc.format.role import Role, source_role
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing
from tests.runtime.runners import Runners

MOST_BYTES = 1 << 20
LINGER_S = 1.0
"""The source keeps the ends of requests for so long, which shall not be what grows."""
TENTHS = 10
_OF_A_CLIENT = 8
"""Requests of one client."""


@dataclass(frozen=True, slots=True)
class Size:
    """The resources that a process holds."""

    bytes: int
    """Resident."""
    files: int
    """Open."""


def size(pid: int) -> Size:
    """The size of a process now."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    return Size(resident, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def sizes(ring: LocalRing, role: Role, tokens: int, seed: int = 0) -> Iterator[dict[str, Size]]:
    """Device → size, after each tenth of the tokens; `role` is the source's.

    Raises:
        RunError: a request failed.
    """
    rng, done = Random(seed), 0
    for tenth in range(1, TENTHS + 1):
        while done < tokens * tenth // TENTHS:
            with ring.client() as client:
                for _ in range(_OF_A_CLIENT):
                    done += _ask(client, role, rng)
        yield {device: size(pid) for device, pid in ring.pids.items()}


def _ask(client: Client, role: Role, rng: Random) -> int:
    """Some requests at once; how many tokens came."""
    model = role.model
    most = model.vocab_size or 0
    requests = []
    for number in range(rng.choice((1, 1, 3))):
        length = rng.randint(1, model.max_sequence // 2)
        rows = rng.randint(1, model.max_batch)
        requests.append(
            client.submit(
                [[rng.randrange(3, most) for _ in range(length)] for _ in range(rows)],
                max_new_tokens=rng.randint(1, model.max_sequence - length),
                sampling=Sampling(temperature=rng.choice((0.0, 1.0)), seed=rng.getrandbits(60)),
                ignore_eos=True,
                trace=rng.random() < 0.1,
            )
        )
        if number and rng.random() < 0.2:
            requests.pop().cancel()
    return sum(len(row) for request in requests for row in request.result().tokens)


def grown(first: Size, last: Size) -> bool:
    """Whether a process holds more than after the first tenth."""
    return last.bytes > first.bytes + MOST_BYTES or last.files > first.files


def main() -> int:
    """Print the sizes after each tenth."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.living.soak", description="Ask a ring for many tokens."
    )
    parser.add_argument("build", type=Path)
    parser.add_argument("--native", type=Path, metavar="RUNNER", help="the native runner; else Python's")
    parser.add_argument(
        "--in-python", default="", metavar="DEVICES", help="letters of devices of Python's runner"
    )
    parser.add_argument("--tokens", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with Runners(options.native, options.in_python).launch(options.build, linger_s=LINGER_S) as ring:
        found = []
        for each in sizes(ring, source_role(options.build), options.tokens, options.seed):
            found.append(each)
            columns = (f"{device} {it.bytes / 1e6:7.2f} MB {it.files:3} files" for device, it in each.items())
            print(f"{options.tokens * len(found) // TENTHS:8} tokens  ", "   ".join(columns), flush=True)
    return int(any(grown(found[0][device], found[-1][device]) for device in found[0]))


if __name__ == "__main__":
    sys.exit(main())
