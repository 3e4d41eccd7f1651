"""One request at the source: what its client asked for, and how far it is.

| state | meaning | followed by |
| --- | --- | --- |
| waiting | for a slot and a complete ring | standing, over |
| standing | has a slot, at a step boundary | stepping, reporting, over |
| stepping | values of a step are waited for | standing, over |
| reporting | all tokens are out, its slot is free; devices report their times | over |
| over | its client has been answered | |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from partc.errors import InternalError
from partc.format.dtypes import Array
from partc.format.message_parts import Likely, Opening, Resumption, Reuse, Sampling
from partc.format.messages import Crossed, Token
from partc.format.program import CHUNK, REPLAY
from partc.format.role import Role
from partc.format.tasks import INPUT_IDS
from partc.runtime.core.events import Origin
from partc.runtime.core.liveness import Progress
from partc.runtime.core.source.inputs import columns, padded, prompt_parts
from partc.runtime.core.source.window import Guess, Window
from partc.runtime.core.step import MOST_FORCED, Step

Call = tuple[Step, Mapping[str, Array]]
"""A step and its inputs."""


class State(Enum):
    """State of a request at the source."""

    WAITING = "waiting"
    STANDING = "standing"
    STEPPING = "stepping"
    REPORTING = "reporting"
    OVER = "over"


FOLLOWING: Mapping[State, Sequence[State]] = {
    State.WAITING: (State.STANDING, State.OVER),
    State.STANDING: (State.STEPPING, State.REPORTING, State.OVER),
    State.STEPPING: (State.STANDING, State.OVER),
    State.REPORTING: (State.OVER,),
    State.OVER: (),
}
"""State → the states that may follow it."""


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client."""

    origin: Origin | None
    """The client's connection; None: it is broken."""
    ticket: bytes
    """The client's name for it."""
    sampling: Sampling
    trace: bool
    submitted: float
    """Seconds on the source's clock, as all times here."""
    progress: Progress
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Inputs of the first step."""
    dims: Mapping[str, int] = field(default_factory=dict)
    position: tuple[int, ...] = ()
    length: tuple[int, ...] = ()
    max_new_tokens: int = 0
    stop: frozenset[int] = frozenset()
    tokens: list[list[int]] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    """The reason for each sequence's end: `stop` or `length`; empty while it goes on."""
    shares: bool = False
    """Whether it may share steps with others: one sequence, whose client does not ask that it is computed as alone."""
    reusable: tuple[int, ...] = ()
    """The prompt, where its rows may be those of an earlier request, and those of a later one; else empty."""
    reuse: Reuse | None = None
    """The rows of an earlier request that it goes on behind."""
    window: Window | None = None
    """Its guesses; None: nothing is guessed."""
    over: int = 0
    """Steps that are over on all devices, in the placement in force."""
    number: int = -1
    slot: int = -1
    prompt: list[Call] = field(default_factory=list)
    """The steps of the prompt."""
    drawn: list[Array] = field(default_factory=list)
    """(batch,) each: the tokens of every step as they were drawn, also those of sequences that have ended."""
    likely: dict[int, tuple[tuple[Likely, ...], ...]] = field(default_factory=dict)
    """Token, from 0 → the probabilities that came with it."""
    next_step: int = 0
    """The step that begins next."""
    state: State = State.WAITING
    replayed: int = 0
    mismatches: int = 0
    crossed: set[tuple[str, str, int, tuple[str, ...]]] = field(default_factory=set)
    """(device, sender, step, values) of the tensors that a traced request was told of."""
    losses: Counter[str] = field(default_factory=Counter)
    """Device → how often it was lost while this request ran."""
    _stood: tuple[int, float] = (-1, 0.0)
    """The token that was waited for when the request last stood still, and since when."""
    started: float = 0.0
    """When the step began whose token is awaited."""
    outputs: Mapping[str, Array] = field(default_factory=dict)
    reports: set[str] = field(default_factory=set)
    """Devices whose timings have not come yet."""

    def become(self, state: State) -> None:
        """Go over to another state.

        Raises:
            InternalError: it does not follow this one.
        """
        if state not in FOLLOWING[self.state]:
            raise InternalError(f"request {self.number} cannot be {state.value}: it is {self.state.value}")
        self.state = state

    def stand(self) -> None:
        """The step under way, if there is one, is over or given up."""
        if self.state is State.STEPPING:
            self.become(State.STANDING)

    def step_begins(self, now: float) -> None:
        """A step begins whose values are waited for."""
        self.become(State.STEPPING)
        self.started = now
        if self.window is not None:
            self.window.step_begins()
        self.progress.moved(now)

    def take(self, tokens: Sequence[int]) -> tuple[int | None, ...]:
        """Take one token per sequence; the new ones, None where a sequence has ended before."""
        fresh: list[int | None] = []
        for row, token in enumerate(tokens):
            if self.finish[row]:
                fresh.append(None)
                continue
            self.tokens[row].append(token)
            self.finish[row] = self._verdict(row, token)
            fresh.append(token)
        return tuple(fresh)

    def drew(self, tokens: Array, likely: tuple[tuple[Likely, ...], ...]) -> Token:
        """Take what a step has drawn, (batch,), with its probabilities; the message that tells of it."""
        number, fresh = self.step, self.take(tokens.tolist())
        self.drawn.append(tokens)
        if likely:
            self.likely[number] = likely
        return Token(ticket=self.ticket, step=number, tokens=fresh, finish=tuple(self.finish), likely=likely)

    # -- guesses

    @property
    def under_way(self) -> int:
        """Steps that have begun, and are not over; tokens that one step takes are one."""
        if self.state is not State.STEPPING:
            return 0
        behind = 0 if self.window is None else len(self.window.guesses) - self.window.steps
        return self.next_step - self.over - behind

    @property
    def branch(self) -> int:
        """The step from which on it was last taken back; 0: it never was."""
        return 0 if self.window is None else self.window.branch

    @property
    def may_guess(self) -> int:
        """Guesses that steps may take behind those under way: of tokens that are not known, while more are wanted."""
        if self.window is None or not self.drawn:
            return 0
        guesses = len(self.window.guesses)
        is_ahead = self.next_step == self.reached + 1 + guesses
        wanted = self.max_new_tokens - len(self.drawn) - guesses - 1
        return max(0, min(self.window.room, wanted)) if is_ahead else 0

    @property
    def last_started(self) -> float:
        """When the last of its steps under way began."""
        return self.window.guesses[-1].started if self.window and self.window.guesses else self.started

    @property
    def awaited_tokens(self) -> int:
        """Tokens of the step whose token is awaited."""
        return 1 if self.window is None else self.window.awaited_tokens

    @property
    def last_tokens(self) -> int:
        """Tokens of the last of its steps under way."""
        return 1 if self.window is None else self.window.last_tokens

    def guess(self, guess: Guess) -> Call:
        """A step that takes a guessed token begins; only where it has a window."""
        assert self.window is not None
        self.window.add(guess)
        call = self._call(self.next_step)
        self.next_step += 1
        return call

    def is_void(self, step: Step) -> bool:
        """Whether a step that is over took a guess that was wrong, or came behind one."""
        return step.branch != self.branch

    def compare(self, token: int) -> bool:
        """Hold a new token against the guess for it; whether the step that takes it is under way.

        If it is not right the request is taken back: the next step begins a branch.
        """
        window = self.window
        if window is None:
            return False
        was_guessed, guess = bool(window.guesses), window.compare(token)
        if guess is not None:
            self.started = guess.started
        elif was_guessed:
            window.branch = self.next_step = self.reached
        return guess is not None

    @property
    def finished(self) -> bool:
        """Whether every sequence has ended."""
        return all(self.finish)

    @property
    def step(self) -> int:
        """Number of the token that it waits for, from 0."""
        return len(self.drawn)

    @property
    def reached(self) -> int:
        """Steps that are over: their values are known."""
        return len(self.prompt) - 1 + len(self.drawn) if self.drawn else 0

    @property
    def is_at_token(self) -> bool:
        """Whether its next step makes a token, and nothing else comes before that."""
        return bool(self.drawn) and self.next_step >= len(self.prompt) and self.next_step + 1 >= self.reached

    def stands_since(self, now: float) -> float:
        """Since when the request stands still: `now`, or an earlier time if no token has come since."""
        if self._stood[0] != self.step:
            self._stood = self.step, now
        return self._stood[1]

    def told(self, token: int) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
        """The tokens of a step as the client is told, and why each sequence has ended by then."""
        rows = zip(self.tokens, self.finish, strict=True)
        finish = tuple(["" if token < len(tokens) - 1 else reason for tokens, reason in rows])
        return tuple([row[token] if token < len(row) else None for row in self.tokens]), finish

    def is_news(self, crossed: Crossed) -> bool:
        """Whether the client has not had these tensors; steps that are computed again bring them again."""
        names = tuple(spec.name for spec in crossed.values)
        key = (crossed.device, crossed.peer, crossed.step, names)
        is_new = key not in self.crossed
        self.crossed.add(key)
        return is_new

    def open(self, number: int, slot: int, role: Role, reuse: Reuse | None = None) -> None:
        """Give it its number and its slot, and what it keeps of that; its first step is next."""
        self.number, self.slot, self.reuse = number, slot, reuse
        self.prompt = list(self._prompt_steps(role))
        self.inputs = {}

    def calls(self) -> Iterator[Call]:
        """The steps that begin now: up to the first one whose values are waited for."""
        while True:
            call = self._call(self.next_step)
            self.next_step += 1
            yield call
            if call[0].phase in ("prefill", "decode"):
                return

    @property
    def kept(self) -> tuple[int, ...]:
        """The tokens whose rows lie in the states of all devices, where later requests may use them."""
        if not self.reusable or not self.over:
            return ()
        behind = self.over - len(self.prompt)
        rows = self.prompt[min(self.over, len(self.prompt)) - 1][0].end[0] + max(0, behind)
        return (*self.reusable, *(int(tokens[0]) for tokens in self.drawn))[:rows]

    def rewind(self, step: int, role: Role) -> Resumption:
        """Go on from a step that is over, or from the next one; from the first on, without rows of others."""
        self.replayed += self.reached - step
        self.stand()
        self.next_step, self.over = step, step
        if self.window is not None:
            self.window.empty()
        if self.reuse is not None and not step:
            self.reuse, self.inputs = None, padded([self.reusable], role)
            self.open(self.number, self.slot, role)
        before = self._call(step - 1)[0].phase if step else ""
        ends = tuple([call[0].end for call in self.prompt[:step]])
        phase = "decode" if before == REPLAY else before
        return Resumption(self.number, self.slot, self.sampling, self.trace, step, phase, ends)

    def _call(self, step: int) -> Call:
        """A step whose inputs are known, and its inputs.

        The results of all but the last are known as well, so they need not be waited for, but for a few: a device
        keeps room for `MOST_FORCED` steps that it has not come to.
        """
        behind = step - len(self.prompt)
        if behind < 0:
            return self.prompt[step]
        last = self.prompt[-1][0]
        is_waited_for = step + 1 >= self.reached or (behind + 1) % MOST_FORCED == 0
        following = Step(
            request=self.number,
            slot=self.slot,
            step=step,
            phase="decode" if is_waited_for else REPLAY,
            dims={**last.dims, "sequence": 1} if "sequence" in last.dims else last.dims,
            position=tuple([end + behind for end in last.end]),
            length=(1,) * len(last.end),
            branch=self.branch,
            busy_s=None if self.window is None else 0.0,
        )
        return following, {INPUT_IDS: self._token(behind).reshape(-1, 1)}

    def _token(self, number: int) -> Array:
        """A token, from 0, that is known or guessed."""
        if number < len(self.drawn):
            return self.drawn[number]
        assert self.window is not None, "else all tokens are known"
        return np.array([self.window.guesses[number - len(self.drawn)].token], np.int64)

    def _prompt_steps(self, role: Role) -> Iterator[Call]:
        """The steps of the prompt with their inputs: one, or one a part."""
        opening = Opening(self.number, self.sampling, self.trace, self.reuse)
        total, kept = self.dims.get("sequence", 1), 0 if self.reuse is None else self.reuse.rows
        width, given = total - kept, self.inputs
        if kept:
            given = {name: columns(array, role.inputs[name], kept, total) for name, array in given.items()}
        for part, (begin, end, inputs) in enumerate(prompt_parts(given, width, len(self.length), role)):
            whole = end - begin == total
            yield (
                Step(
                    request=self.number,
                    slot=self.slot,
                    step=part,
                    phase=CHUNK if end < width else "prefill",
                    dims=self.dims if whole else {**self.dims, "sequence": end - begin},
                    position=self.position if whole else (kept + begin,),
                    length=self.length if whole else (end - begin,),
                    opening=None if part else opening,
                ),
                inputs,
            )

    def _verdict(self, row: int, token: int) -> str:
        if token in self.stop:
            return "stop"
        return "length" if len(self.tokens[row]) >= self.max_new_tokens else ""
