"""Contestants taking turns, round by round, so that what else runs on the machine hits all of them.

A machine may change its speed for seconds at a time, so the turns of a round are short where contestants stay loaded:
all are asked for a few tokens, one behind the other, then all for a prompt, and so on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.bench.bandwidth import BLAS_THREADS
from tests.bench.speed.clocks import Sample
from tests.bench.speed.contestants import CONTESTANTS, RING, THREE, TWO
from tests.bench.speed.engines.contract import CONTEXT, PROMPT, median
from tests.bench.speed.outputs import expected_file
from tests.bench.speed.places import Cell, checkpoint

READ = "streaming read"
STEPS = 8
"""Tokens of one turn of decode."""
PAIR_STEPS = 16
"""The same for two requests at once and for hops, which have one turn in a round."""
PHASES = ("decode", "prefill")
CONTEXTS = (16, 128, 512, 2048)
"""Tokens before the one that decode is timed for."""
EXTRA = {TWO: ("pair", "hop"), THREE: ("hop",), RING: ("pair",)}
"""Further requests to rings."""
RESIDENT = 0.6
"""The part of free memory that all contestants of a table may take for staying loaded between their turns."""
WARM_UP_STEPS = 3
PATIENCE_S = 1800.0
"""Seconds for one answer; a contestant that hangs is killed then."""


class TurnError(Exception):
    """A contestant gave up; with its last words."""


@dataclass
class Taken:
    """Samples by contestant and by what was asked, one a round; and why contestants are missing."""

    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


class Child:
    """A contestant's process."""

    def __init__(self, cell: Cell, name: str, errors: IO[bytes]) -> None:
        """`errors` takes what it writes to standard error."""
        engine, processes = "read", 1
        if name != READ:
            engine, processes = CONTESTANTS[name].engine, CONTESTANTS[name].processes
        path = cell.place if name == READ else CONTESTANTS[name].files.path(cell)
        command = [sys.executable, "-m", "tests.bench.speed.worker", engine, str(path)]
        command += [str(cell.threads), str(processes), cell.kind, str(expected_file(checkpoint(cell.place)))]
        command += ["--small-pages"] if cell.small_pages else []
        self._errors = errors
        # The others are told their number of threads; torch would otherwise make more than it uses.
        environment = {**os.environ, **BLAS_THREADS, "OMP_NUM_THREADS": str(cell.threads)}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, text=True,
        )  # fmt: skip

    def ask(self, words: str) -> Sample:
        """One question, one answer.

        Raises:
            TurnError: it ended instead.
        """
        assert self._process.stdin is not None
        try:
            print(words, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise TurnError(self._last_words()) from None
        return Sample(**self._answer())

    def loaded(self) -> None:
        """Wait for that.

        Raises:
            TurnError: it ended instead.
        """
        self._answer()

    def close(self) -> None:
        """Let it end, and wait for that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            raise TurnError(self._last_words())
        return json.loads(line)  # type: ignore[no-any-return]

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        lines = [line for line in lines if not line[0].isspace()]  # a hint, or code of a traceback
        return lines[-1] if lines else f"it ended with {self._process.returncode}"


def decode_at(context: int) -> str:
    """The request for a token behind so many others."""
    return f"decode {context}"


def is_decode(asked: str) -> bool:
    """Whether this is a request for such tokens."""
    return asked.startswith("decode ")


def context_of(asked: str) -> int:
    """The context of such a request."""
    return int(asked.split()[1])


def requests(phases: Sequence[str], contexts: Sequence[int]) -> list[str]:
    """What everybody is asked: tokens at each context, in its order, and a prompt.

    A prompt comes before contexts as long as it, so that less has to be taken in for those.
    """
    decode = [decode_at(context) for context in sorted(contexts)] if "decode" in phases else []
    short = sum(context < PROMPT for context in contexts) if decode else 0
    return [*decode[:short], *(["prefill"] if "prefill" in phases else []), *decode[short:]]


def take_turns(cell: Cell, names: Sequence[str], asked: Sequence[str], rounds: int) -> Taken:
    """Measure all of them in what is `asked` (`requests`); every round begins with another one.

    A failure ends the part of one contestant in the table, and no other's.
    """
    taken = Taken({name: {} for name in (READ, *names)})
    order = deque((READ, *names))
    with ExitStack() as stack:
        stay = _fits(cell, names)
        room = _Room(cell, stack if stay else None)
        for _ in range(rounds):
            _take_round(room, list(turns(cell, order, asked, stay)), taken)
            order.rotate(-1)
    for name in taken.absent:
        del taken.samples[name]
    return taken


def turns(
    cell: Cell, names: Iterable[str], asked: Sequence[str], stay: bool
) -> Iterator[tuple[str, list[str]]]:
    """The turns of a round: who is asked what. Who does not stay loaded is asked everything in one."""
    extra = ("pair", "hop") if decode_at(CONTEXT) in asked and cell.threads == 1 else ()
    words = [word for one in (*asked, *extra) for word in [one] * (cell.turns if is_decode(one) else 1)]
    if not stay:
        yield from ((name, [word for word in words if _is_asked(name, word)]) for name in names)
        return
    for word in words:
        yield from ((name, [word]) for name in names if _is_asked(name, word))


def _is_asked(name: str, word: str) -> bool:
    return is_decode(word) or word in EXTRA.get(name, ()) or (word == "prefill" and name != READ)


def _take_round(room: _Room, order: Iterable[tuple[str, list[str]]], taken: Taken) -> None:
    """One round: a sample of each contestant and word, the median over its turns."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for name, words in order:
        if name in taken.absent:
            continue
        try:
            with room.child(name) as child:
                for word in words:
                    found.setdefault((name, word), []).append(child.ask(_question(word)))
        except TurnError as error:
            taken.absent[name] = str(error)
    for (name, word), samples in found.items():
        taken.samples[name].setdefault(word, []).append(median(samples))


def _question(asked: str) -> str:
    """The line that a worker gets: the request with the number of tokens."""
    word, *context = asked.split()
    tokens = {"decode": [STEPS], "pair": [PAIR_STEPS], "hop": [PAIR_STEPS]}
    return " ".join(map(str, (word, *tokens.get(word, ()), *context)))


class _Room:
    """The processes of a cell; with a stack they stay loaded until it is closed."""

    def __init__(self, cell: Cell, stack: ExitStack | None) -> None:
        self._cell = cell
        self._stack = stack
        self._kept: dict[str, Child] = {}

    @contextmanager
    def child(self, name: str) -> Iterator[Child]:
        if self._stack is None:
            with _child(self._cell, name) as child:
                yield child
            return
        if name not in self._kept:
            self._kept[name] = self._stack.enter_context(_child(self._cell, name))
        yield self._kept[name]


@contextmanager
def _child(cell: Cell, name: str) -> Iterator[Child]:
    with tempfile.TemporaryFile() as errors:
        child = Child(cell, name, errors)
        try:
            child.loaded()
            child.ask(f"decode {WARM_UP_STEPS} {CONTEXT}")
            yield child
        finally:
            child.close()


def _fits(cell: Cell, names: Sequence[str]) -> bool:
    """Whether all may stay loaded; counted twice, as some keep a packed copy beside what they read."""
    sizes = [_size(CONTESTANTS[name].files.path(cell)) for name in names]
    return 2 * sum(sizes) < RESIDENT * _available_bytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.rglob("*"))


def _available_bytes() -> int:
    lines: Mapping[str, str] = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines()
    )
    return int(lines["MemAvailable"].split()[0]) * 1024
