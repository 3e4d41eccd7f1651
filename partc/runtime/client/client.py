"""Client of a ring: requests for tokens or outputs.

One thread uses a client: whoever waits for one request handles the messages of all of them meanwhile, so
several requests in flight need no threads.

A connection may break, and stand again: a network has gaps. The source waits as well, so the client asks for what it
missed (`resume`), and its requests go on as if nothing had been. Only a source that was started anew knows nothing of
them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, assert_never

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.fields import LONGEST_CAUSE
from partc.format.frames import join_tensors
from partc.format.message_parts import Sampling
from partc.format.messages import (
    AnyMessage,
    Error,
    Ping,
    Place,
    Placed,
    Pong,
    Shutdown,
    SourceReply,
    Stats,
    Status,
    Token,
    Trace,
    Watch,
    Welcome,
)
from partc.format.messages import Result as Ended
from partc.format.placement import Placement, placement_frames
from partc.format.role import Role, source_role
from partc.format.status import RingStatus
from partc.runtime.client.connection import Connection
from partc.runtime.client.line import Ending
from partc.runtime.client.placing import Answered, Placing
from partc.runtime.client.prompts import Prompts
from partc.runtime.client.query import GREEDY, Query, checked
from partc.runtime.client.request import Request
from partc.runtime.client.results import Crossing, Result, Timings, Tokens
from partc.runtime.client.text import Tokenizer
from partc.runtime.core.liveness import LEAST_PATIENCE_S, LINGER_S, patience_s
from partc.runtime.shell.keys import Keys, load_client_keys

Explain = Callable[[PartcError], PartcError]


class Client(Connection):
    """A connection to the source of a ring. Not for use by several threads."""

    gone_hint: ClassVar[str] = "see what its runner says, start it again, and repeat the request"
    key_hint: ClassVar[str] = (
        "use the build folder that these devices were set up from, or make new keys: partc keys"
    )

    def __init__(
        self,
        role: Role,
        keys: Keys | None,
        address: str,
        floor_s: float,
        linger_s: float,
        explain: Explain = lambda error: error,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """Begin to connect to the source, whose role it is; use `connect` instead."""
        super().__init__(role, keys, address, floor_s)
        self._tokenizer = tokenizer or Tokenizer(None)
        self._floor_s = floor_s
        self._linger_s = linger_s
        self._explain = explain
        self._life: int | None = None
        """The incarnation of the source that knows the requests."""
        self._requests: dict[bytes, Request] = {}
        self._placings: dict[bytes, Placing] = {}
        """Ticket of a placement that was asked for → what came of it."""
        self._watching: dict[bytes, tuple[Watch, Callable[[RingStatus], None]]] = {}
        self._asked = self._heard

    @classmethod
    def connect(
        cls,
        build_dir: Path,
        address: str | None = None,
        *,
        insecure: bool = False,
        floor_s: float = LEAST_PATIENCE_S,
        linger_s: float = LINGER_S,
        explain: Explain = lambda error: error,
        tokenizer: Tokenizer | None = None,
    ) -> Client:
        """Connect to the ring of a build.

        Args:
            build_dir: what `partc compile` wrote.
            address: HOST:PORT of the source device; None takes the one in devices.yaml.
            insecure: neither encrypt nor authenticate; loopback only.
            floor_s: how long the source may be silent at least, seconds.
            linger_s: how long requests wait for a source that is out of reach, seconds.
            explain: turns an error into a better one (the launcher knows what its runners said).
            tokenizer: that of the build, where somebody has it already.

        Raises:
            BundleError: not a build, or its client keys are missing.
            RunError: the source cannot be reached, refuses our key, or runs another build.
        """
        keys = None if insecure else load_client_keys(build_dir)
        role = source_role(build_dir)
        tokenizer = tokenizer or Tokenizer(build_dir / "devices" / role.device)
        return cls.reach(
            role, keys, address, floor_s=floor_s, linger_s=linger_s, explain=explain, tokenizer=tokenizer
        )

    @classmethod
    def reach(
        cls,
        role: Role,
        keys: Keys | None,
        address: str | None = None,
        *,
        floor_s: float = LEAST_PATIENCE_S,
        linger_s: float = LINGER_S,
        explain: Explain = lambda error: error,
        tokenizer: Tokenizer | None = None,
    ) -> Client:
        """Connect as `connect` does, with a role that is in memory; without keys nothing is encrypted."""
        found = address or role.addresses.get(role.source)
        if not found:
            hint = "start the ring with partc run, or give --connect HOST:PORT, or `address` in devices.yaml"
            raise RunError("the address of the source is not known", where=role.source, hint=hint)
        client = cls(role, keys, found, floor_s, linger_s, explain, tokenizer)
        try:
            client._await_welcome(floor_s, "start its partc-runner, and see that the address is right")
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        """Hang up; requests in flight are cancelled."""
        for request in self._requests.values():
            request.cancel()
        super().close()

    def generate(
        self, prompts: Prompts, max_new_tokens: int | None = None, sampling: Sampling = GREEDY, **options: Any
    ) -> Result:
        """Generate and wait; see `submit` for the options."""
        return self.submit(prompts, max_new_tokens=max_new_tokens, sampling=sampling, **options).result()

    def encode(self, prompts: Prompts, **options: Any) -> Result:
        """Outputs of a model that reads tokens and does not generate."""
        return self.submit(prompts, **options).result()

    def run(self, inputs: Mapping[str, Array], **options: Any) -> Result:
        """Outputs for tensors; `length` (batch,) may be among them where the model reads tokens."""
        return self.submit(inputs=inputs, **options).result()

    def submit(
        self,
        prompts: Prompts = (),
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        stop: Iterable[int] = (),
        ignore_eos: bool = False,
        inputs: Mapping[str, Array] | None = None,
        on_token: Callable[[Tokens], None] | None = None,
        trace: bool = False,
        reuse: bool = False,
        drafts: bool = True,
        expected: Sequence[int] = (),
    ) -> Request:
        """Begin a request; `Query` describes what it takes, `begin` what it raises."""
        ends = tuple(stop)
        query = Query(
            prompts, max_new_tokens, sampling, ends, ignore_eos, inputs, trace, reuse, drafts, expected
        )
        return self.begin(query, on_token)

    def begin(self, query: Query, on_token: Callable[[Tokens], None] | None = None) -> Request:
        """Begin a request; any number may be in flight.

        Args:
            query: the whole request.
            on_token: called with every step's tokens while somebody waits for a result; what it raises cancels
                the request, and reaches whoever waits.

        Raises:
            RunError: more than the plan allows, or the ring is gone.
        """
        if self._failure is not None:
            raise self._failure
        asked = checked(query, self.role, self._tokenizer)
        submit, frames = asked.submit(secrets.token_bytes(16), self.role), asked.frames()
        request = Request(
            line=self,
            ticket=submit.ticket,
            prompts=asked.ids,
            streams=asked.streams(self.role, self._tokenizer),
            on_token=on_token,
            expected_s=asked.expected_s(self.role),
            submit=submit,
            frames=frames,
        )
        self.tell(submit, frames)
        self._requests[request.ticket] = request
        return request

    def wait(self, requests: Sequence[Ending], timeout_s: float | None = None) -> None:
        """Handle messages until these requests have ended, or the time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        # While nobody waited, nobody listened; so patience begins anew.
        self._heard = time.monotonic()
        while not all(request.done for request in requests):
            now = time.monotonic()
            if end is not None and now >= end:
                return
            self._pump(min(self._floor_s / 4, float("inf") if end is None else end - now))
            self._check_alive()

    def place(self, placement: Placement, on_end: Answered | None = None, reason: str = "") -> Placing:
        """Ask for another placement of the build; requests in flight go on under it.

        Args:
            placement: its epoch does not count.
            on_end: called with the outcome, while somebody waits.
            reason: in words, for those who watch.
        """
        placing = Placing(self, secrets.token_bytes(16), on_end)
        place = Place(ticket=placing.ticket, reason=reason[:LONGEST_CAUSE])
        self.tell(place, placement_frames(placement))
        self._placings[placing.ticket] = placing
        return placing

    def watch(self, period_s: float, on_status: Callable[[RingStatus], None]) -> bytes:
        """Be told how the ring is, every `period_s` seconds while somebody waits or listens; a ticket for `unwatch`."""
        watch = Watch(ticket=secrets.token_bytes(16), period_s=period_s)
        self._watching[watch.ticket] = watch, on_status
        self.tell(watch)
        return watch.ticket

    def unwatch(self, ticket: bytes) -> None:
        """End what `watch` began."""
        if self._watching.pop(ticket, None) is not None:
            self.tell(Watch(ticket=ticket, period_s=0))

    def listen(self, seconds: float) -> None:
        """Handle messages until one has come, or for so long.

        Raises:
            RunError: the ring is gone.
        """
        if self._failure is not None:
            raise self._failure
        self._pump(min(seconds, self._floor_s / 4))
        self._check_alive()

    def shutdown(self) -> None:
        """Ask all runners of the ring to end."""
        self.tell(Shutdown())

    def _check_alive(self) -> None:
        """Ask the source for a sign of life when it is silent; give up when it stays so."""
        now = time.monotonic()
        expected = [request.expected_s for request in self._requests.values()]
        patience = patience_s(max(expected, default=0.0) * len(expected), self._floor_s)
        patience = max(patience, self._linger_s)
        if now - self._heard >= patience:
            self._fail(self._silent(patience))
        elif now - max(self._heard, self._asked) >= self._floor_s / 4:
            self._asked = now
            self.tell(Ping())

    def _silent(self, patience: float) -> RunError:
        """The reason why a source is given up from which nothing has come for so long."""
        source = self.role.source
        if self._welcome is None:
            message = f"{source} closed its connection, and was out of reach for {patience:.1f} s"
            return RunError(message, where=source, hint=self.gone_hint, cause="lost-peer")
        hint = "see whether it hangs, start its runner again, and repeat the request"
        return RunError(f"no sign of life for {patience:.1f} s", where=source, hint=hint, cause="stalled")

    def _broke(self) -> None:
        """Wait for the source; whether a placement came into force meanwhile, nobody tells."""
        if not self._linger_s:
            super()._broke()
            return
        self._welcome = None
        source = self.role.source
        for ticket in list(self._placings):
            hint = "partc watch tells which placement is in force"
            message = f"{source} closed its connection before it told the outcome"
            self._placed(ticket, RunError(message, where=source, hint=hint, cause="lost-peer"))

    def _welcomed(self, welcome: Welcome) -> None:
        super()._welcomed(welcome)
        before, self._life = self._life, welcome.incarnation
        if before is None:
            return
        for watch, _ in self._watching.values():
            self.tell(watch)
        for request in list(self._requests.values()):
            if before == welcome.incarnation:
                request.ask_again()
            else:
                self._end(request, self._forgotten())

    def _forgotten(self) -> RunError:
        message = f"{self.role.source} was started anew, and does not know this request"
        hint = "see what its runner says, and repeat the request"
        return RunError(message, where=self.role.source, hint=hint, cause="lost-peer")

    def _take(self, message: AnyMessage, frames: Sequence[memoryview]) -> None:
        if not isinstance(message, SourceReply):
            return
        match message:
            case Token(ticket=ticket) | Stats(ticket=ticket) | Trace(ticket=ticket) | Ended(ticket=ticket):
                request = self._requests.get(ticket)
                if request is not None:
                    self._try_request(request, message, frames)
            case Error(ticket=ticket, problem=problem):
                request = self._requests.get(ticket)
                if request is not None:
                    self._end(request, self._explain(problem.error()))
                self._placed(ticket, problem.error())
                if self._watching.pop(ticket, None) is not None:
                    raise problem.error()
            case Placed(ticket=ticket):
                self._placed(ticket, message)
            case Status(ticket=ticket, ring=ring):
                if (watching := self._watching.get(ticket)) is not None:
                    watching[1](ring)
            case Pong():
                pass  # `Connection` has noted the sign of life
            case _:
                assert_never(message)

    def _try_request(
        self, request: Request, message: Token | Stats | Trace | Ended, frames: Sequence[memoryview]
    ) -> None:
        """Handle what came for a request. Where that fails, the request ends, and the others go on."""
        try:
            self._of_request(request, message, frames)
        except BaseException as error:
            request.cancel()
            self._end(request, RunError(f"the request was cancelled: {error!r} was raised", cause="bug"))
            raise

    def _of_request(
        self, request: Request, message: Token | Stats | Trace | Ended, frames: Sequence[memoryview]
    ) -> None:
        match message:
            case Token(step=step) if step < request.steps:
                pass  # told twice, around a gap
            case Token(step=step):
                assert step == request.steps, f"token {step} came, {request.steps} is awaited"
                texts = request.take(message)
                if request.on_token is not None:
                    request.on_token(Tokens(message.step, list(message.tokens), texts, message.likely))
            case Stats(device=device, columns=columns, values=specs):
                request.timings[device] = Timings(columns, next(iter(join_tensors(specs, frames).values())))
            case Trace(device=device, peer=peer, step=step, values=specs):
                request.trace.append(Crossing(device, peer, step, join_tensors(specs, frames)))
            case Ended():
                self._end(request, request.finish(message, frames))
            case _:
                assert_never(message)

    def _placed(self, ticket: bytes, outcome: Placed | PartcError) -> None:
        placing = self._placings.pop(ticket, None)
        if placing is not None:
            placing.end(outcome)

    def _end(self, request: Request, outcome: Result | PartcError) -> None:
        request.outcome = outcome
        self._requests.pop(request.ticket, None)

    def _fail(self, error: PartcError) -> None:
        explained = self._explain(error)
        super()._fail(explained)
        for request in list(self._requests.values()):
            self._end(request, explained)
        for ticket in list(self._placings):
            self._placed(ticket, explained)
