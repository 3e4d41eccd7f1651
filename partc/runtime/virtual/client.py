"""A client in virtual time: it submits requests, and keeps all that comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from partc.errors import InternalError
from partc.format.dtypes import Array
from partc.format.frames import join_tensors, to_frame
from partc.format.message_parts import Problem, Sampling
from partc.format.messages import (
    CLIENT,
    AnyMessage,
    Cancel,
    Error,
    Message,
    Place,
    Placed,
    Result,
    Stats,
    Submit,
    Token,
    Trace,
    Welcome,
)
from partc.format.placement import Placement, placement_frames
from partc.format.role import Role
from partc.runtime.client.greeting import client_hello
from partc.runtime.client.results import Crossing
from partc.runtime.core.events import Connected, Disconnected, Event, Received
from partc.runtime.core.source.inputs import specs_of
from partc.runtime.virtual.network import Network

_GREEDY = Sampling()


@dataclass
class Answer:
    """All answers to a request."""

    ticket: bytes
    tokens: list[Sequence[int | None]] = field(default_factory=list)
    """Step → per sequence."""
    trace: list[Crossing] = field(default_factory=list)
    reports: set[str] = field(default_factory=set)
    """Devices whose timings came."""
    result: Result | None = None
    outputs: Mapping[str, Array] = field(default_factory=dict)
    problem: Problem | None = None
    late: list[AnyMessage] = field(default_factory=list)
    """Messages that came after the end; there must be none."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.result is not None or self.problem is not None


class VirtualClient:
    """The only client of a ring."""

    def __init__(self, role: Role, network: Network) -> None:
        """Connect to the source, whose role it is."""
        self.name = CLIENT
        self.alive = True
        self.answers: dict[bytes, Answer] = {}
        self._role, self._network = role, network
        self.placed: list[bool] = []
        """Placements that were asked for: whether they came into force."""
        self._places = 0
        self._welcomed = False
        self._unsent: list[tuple[Message, Sequence[memoryview]]] = []
        """Messages until the source has welcomed the client."""
        network.connect(self, role.source)

    def submit(
        self,
        prompts: Sequence[Sequence[int]] = (),
        max_new_tokens: int = 0,
        *,
        inputs: Mapping[str, Array] | None = None,
        sampling: Sampling = _GREEDY,
        ignore_eos: bool = False,
        trace: bool = False,
        reuse: bool = False,
        drafts: bool = False,
        expected: Sequence[int] = (),
    ) -> Answer:
        """Ask for tokens, or for the outputs of a model that does not generate."""
        answer = Answer((len(self.answers) + 1).to_bytes(16, "big"))
        arrays = dict(inputs or {})
        submit = Submit(
            ticket=answer.ticket,
            prompts=tuple(map(tuple, prompts)),
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            stop=(),
            ignore_eos=ignore_eos,
            trace=trace,
            values=specs_of(arrays, self._role.types),
            reuse=reuse,
            drafts=drafts,
            expected=tuple(expected),
        )
        self.answers[answer.ticket] = answer
        self._tell(submit, [to_frame(array) for array in arrays.values()])
        return answer

    def place(self, placement: Placement) -> None:
        """Ask for a placement."""
        self._places += 1
        self._tell(Place(ticket=self._places.to_bytes(16, "little")), placement_frames(placement))

    def cancel(self, answer: Answer) -> None:
        """Ask for the end of a request."""
        self._tell(Cancel(ticket=answer.ticket))

    def take(self, event: Event) -> None:
        """Take what came over the connection to the source."""
        match event:
            case Connected(peer):
                self._network.send(self, peer, client_hello(self._role), ())
            case Disconnected():
                self._welcomed = False
                self._lost()
            case Received(message=Welcome()):
                self._welcomed = True
                unsent, self._unsent = self._unsent, []
                for message, frames in unsent:
                    self._tell(message, frames)
            case Received(message=Placed()):
                self.placed.append(True)
            case Received(message=Error(ticket=ticket)) if ticket not in self.answers:
                self.placed.append(False)
            case Received(message=Token() | Stats() | Trace() | Result() | Error() as message, frames=frames):
                self._answered(self.answers[message.ticket], message, frames)
            case _:
                raise InternalError(f"the source sent a client {event}")

    # -- inner workings

    def _tell(self, message: Message, frames: Sequence[memoryview] = ()) -> None:
        if self._welcomed:
            self._network.send(self, self._role.source, message, frames)
        else:
            self._unsent.append((message, frames))

    def _lost(self) -> None:
        """The source is gone, and with it every request that was on its way to it or there."""
        unsent = {message.ticket for message, _ in self._unsent if isinstance(message, Submit)}
        for ticket, answer in self.answers.items():
            if ticket not in unsent and not answer.done:
                text = f"{self._role.source} closed its connection"
                answer.problem = Problem("lost-peer", text, self._role.source)

    def _answered(
        self,
        answer: Answer,
        message: Token | Stats | Trace | Result | Error,
        frames: Sequence[memoryview],
    ) -> None:
        if answer.done:
            answer.late.append(message)
            return
        match message:
            case Token(tokens=tokens):
                answer.tokens.append(tokens)
            case Stats(device=device):
                answer.reports.add(device)
            case Trace(device=device, peer=peer, step=step, values=specs):
                answer.trace.append(Crossing(device, peer, step, join_tensors(specs, frames)))
            case Result(values=specs):
                answer.result, answer.outputs = message, join_tensors(specs, frames)
            case Error(problem=problem):
                answer.problem = problem
            case _:
                assert_never(message)
