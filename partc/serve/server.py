"""The process of an endpoint: sockets, TLS, the event loop, signals."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from partc.errors import ConfigError, PartcError, RunError
from partc.format.capabilities import Facts
from partc.format.logs import SERVER
from partc.format.role import Role
from partc.format.status import RingStatus
from partc.format.tasks import SOURCE
from partc.runtime.client.text import Tokenizer
from partc.runtime.shell.addresses import cannot_listen
from partc.runtime.shell.descriptors import raise_limit
from partc.runtime.shell.log import LogSettings, LogWriter
from partc.serve.access import App, Gate, Limits
from partc.serve.app import Endpoint
from partc.serve.browsers import Browsers
from partc.serve.connections import (
    FIRST_BYTE_S,
    LAST_RESORT_S,
    HttpServer,
    Listener,
    Lobby,
    Protocol,
    accepted_at_once,
    listener,
    most_waiting,
)
from partc.serve.live import Live, PlannedOf
from partc.serve.moves import Mover, Moves
from partc.serve.pooling import read_pooling
from partc.serve.replies import Json
from partc.serve.request_log import RequestLog
from partc.serve.ring import Beside, Opener, State
from partc.serve.ring_log import RingLog
from partc.serve.rings import Rings
from partc.serve.template import Renderer, read_chat

LOOPBACK = "localhost"
"""Host that means this machine's own names: both loopback addresses, of which clients take either."""
_TRIES = 20
"""Free ports that are tried, until one is free at all addresses."""
_MOST_HEADER_BYTES = 32 << 10

Tell = Callable[[str, str, str], None]
"""Called with `listening`, the address and nothing, and with each state of a ring, its reason and the ring's name."""


@dataclass(frozen=True)
class ServerSettings:
    """Options of the server."""

    host: str
    port: int
    """0: any free one."""
    name: str | None
    """Name of the model; None: the build's."""
    keys: frozenset[bytes]
    """API keys; empty: nobody needs one."""
    certificate: Path | None
    private_key: Path | None
    template: Path | None
    """A chat template instead of the model's."""
    temperature: float
    limits: Limits
    log: LogSettings = field(default_factory=LogSettings)
    """The log, on standard error."""
    lets_move: bool = False
    """Whether clients may move sub-modules even if others than this machine's may ask."""
    origins: frozenset[str] = frozenset()
    """Origins of web pages elsewhere that may use the API."""
    ignores_unknown: bool = False
    """Whether fields that the server does not have are ignored, and told in a header."""
    drafts: bool = True
    """Whether tokens may be guessed."""

    @property
    def may_move(self) -> bool:
        """Whether clients may move sub-modules: those of this machine may, unless there are keys."""
        return self.lets_move or (self.is_local and not self.keys)

    @property
    def is_local(self) -> bool:
        """Whether it listens on the loopback interface alone."""
        return self.host in ("127.0.0.1", LOOPBACK, "::1")


@dataclass(frozen=True)
class RingSettings:
    """A ring behind the endpoint."""

    name: str
    build: Path
    role: Role
    """That of the source."""
    opener: Opener
    planned: PlannedOf
    """For those who look at the ring."""
    beside: Beside | None = None
    """The balancer; None: nothing moves by itself."""
    mover: Mover | None = None
    """The function that works out moves of its sub-modules; None: nobody may move them."""
    facts: Facts | None = None
    """The facts of its build, from which follows what it cannot do; None: nothing is said of it."""


class Server:
    """An endpoint, whose rings may change while it runs."""

    def __init__(self, first: RingSettings, settings: ServerSettings, tell: Tell) -> None:
        """Nothing is started yet; model and tokenizer are those of `first`."""
        self._first, self._settings, self._tell = first, settings, tell
        self._planned: dict[str, PlannedOf] = {}
        self._movers: dict[str, Mover] = {}
        self._rings: Rings | None = None
        self._server: HttpServer | None = None
        self._error: PartcError | None = None

    async def run(self, others: Sequence[RingSettings] = ()) -> None:
        """Answer until a signal comes, or `end` is called.

        Raises:
            ConfigError: a file of the settings cannot be used; a ring has another model.
            RunError: the build has no tokenizer for its answers; the address cannot be had, or no ring can be.
        """
        for other in others:
            self._check(other)
        first, settings = self._first, self._settings
        folder = first.build / "devices" / first.role.source
        tokenizer = Tokenizer(folder)
        if first.role.model.generates and not tokenizer.is_there:
            raise RunError(
                "this build has no tokenizer, and the answers of an endpoint are texts",
                where=str(first.build),
                hint="name one in model.yaml (`tokenizer: FOLDER`); `partc run --token-ids` needs none",
            )
        log = LogWriter(SERVER, settings.log)
        chat = read_chat(folder / "tokenizer", settings.template)
        files = raise_limit()
        lobby = Lobby(most_waiting(files))
        with Renderer(chat) as renderer, contextlib.ExitStack() as stack:
            listeners = [stack.enter_context(one) for one in _listening(settings, lobby)]
            rings = self._rings = Rings(asyncio.get_running_loop(), self._ring_is)
            live = Live(rings, self._planned_of, settings.may_move, log=RingLog(log))
            live.begin()
            endpoint = self._endpoint = Endpoint(
                role=first.role,
                name=settings.name or first.role.model.name,
                tokenizer=tokenizer,
                chat=chat,
                limits=settings.limits,
                temperature=settings.temperature,
                rings=rings,
                renderer=renderer,
                live=live,
                browsers=Browsers(settings.origins, bool(settings.keys)),
                ignores_unknown=settings.ignores_unknown,
                drafts=settings.drafts,
                moves=Moves(rings, live, self._movers) if settings.may_move else None,
                pooling=read_pooling(folder / "tokenizer"),
            )
            try:
                app = RequestLog(_gate(endpoint, settings, files), log)
                self._server = HttpServer(_config(app, settings, lobby, files), lobby, rings.give_up)
                log.write("listening", {"address": _url(listeners[0], settings)})
                self._tell("listening", _url(listeners[0], settings), "")
                for ring in (first, *others):
                    self._open(ring)
                await self._server.serve(sockets=[*listeners])
            finally:
                log.write("stopping", {"reason": "a ring has ended" if self._error else "it was told to"})
                await asyncio.to_thread(rings.close)
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """End the server; answers under way have some seconds."""
        if self._server is not None:
            self._server.should_exit = True

    def open(self, ring: RingSettings) -> None:
        """Put another ring behind the endpoint. Called in the event loop; raises as `run`."""
        self._check(ring)
        self._open(ring)

    async def remove(self, name: str, grace_s: float) -> None:
        """Take a ring away when its requests have ended; raises as `Rings.remove`."""
        assert self._rings is not None, "the server runs"
        await self._rings.remove(name, grace_s)
        self._movers.pop(name, None)

    async def look(self, patience_s: float) -> Json:
        """`{in_flight, rings: [{name, state, ring}]}`; waits so long for rings that stand to say how they are."""
        found: list[Json] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s), aclosing(self._endpoint.live.looks()) as looks:
                async for found in looks:
                    if all(ring["ring"] or ring["state"] != "ready" for ring in found):
                        break
        return {"in_flight": self._endpoint.metrics.in_flight, "rings": found}

    def _open(self, ring: RingSettings) -> None:
        assert self._rings is not None, "the server runs"
        self._planned[ring.name] = ring.planned
        if ring.facts is not None:
            self._endpoint.live.log.facts[ring.name] = ring.facts
        if ring.mover is not None:
            self._movers[ring.name] = ring.mover
        self._rings.open(ring.name, ring.opener, ring.role.model.max_requests, ring.beside)

    def _ring_is(self, name: str, state: State, error: PartcError | None) -> None:
        assert self._rings is not None, "a ring is behind the server"
        live, reason = self._endpoint.live, error.message if error else ""
        live.log.is_in(name, state, reason)
        if state != "ready":
            live.forget(name)
        live.wake()
        self._tell(state, reason, name)
        if self._rings.state == "ended":
            self._error = error
            self.end()

    def _planned_of(self, name: str, ring: RingStatus) -> Mapping[str, float]:
        return self._planned[name](ring)

    def _check(self, other: RingSettings) -> None:
        """All rings must understand the same prompts, and give tokens of the same vocabulary."""
        ours, theirs = map(_model_facts, (self._first.role, other.role))
        for key, wanted in ours.items():
            found = theirs[key]
            if wanted != found:
                message = f"{key} is {found}; the ring {self._first.name} has {wanted}"
                hint = "rings behind one endpoint are of one model: compile it for each"
                raise ConfigError(message, where=str(other.build), hint=hint)


def _model_facts(role: Role) -> dict[str, object]:
    """Name → what rings behind one endpoint must have in common: a request may go on at any of them."""
    model = role.model
    return {
        "task": model.task,
        "vocab_size": model.vocab_size,
        "max_sequence": model.max_sequence,
        "max_source": role.dims.get(SOURCE),
        "start_tokens": list(model.start_tokens),
    }


def _gate(endpoint: Endpoint, settings: ServerSettings, files: int) -> Gate:
    is_local = settings.is_local and not settings.keys
    most = min(settings.limits.most_connected, files // 4)
    return Gate(endpoint.app(), settings.keys, is_local, most, endpoint.browsers)


def _config(app: App, settings: ServerSettings, lobby: Lobby, files: int) -> uvicorn.Config:
    protocol: Any = partial(Protocol, lobby)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        backlog=accepted_at_once(files),
        timeout_keep_alive=int(FIRST_BYTE_S),
        timeout_graceful_shutdown=LAST_RESORT_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        where = f"{settings.certificate}, {settings.private_key}"
        hint = "give a certificate and its private key in PEM: --tls-cert FILE --tls-key FILE"
        raise ConfigError(f"not a certificate with its key: {error}", where=where, hint=hint) from None
    return config


def _listening(settings: ServerSettings, lobby: Lobby) -> list[Listener]:
    """Sockets at the host's address, or at both loopback addresses, with one port."""
    first, *others = ("127.0.0.1", "::1") if settings.host == LOOPBACK else (settings.host,)
    for _ in range(_TRIES):
        made = [_listener(first, settings.port, lobby)]
        try:
            made += _others(others, made[0].getsockname()[1], lobby)
        except RunError:
            made[0].close()
            if settings.port:
                raise
        else:
            return made
    raise RunError("no port is free at all addresses", where=settings.host, hint="give --port")


def _others(hosts: Sequence[str], port: int, lobby: Lobby) -> list[Listener]:
    """Sockets at further addresses; those that this machine does not have are left out."""
    return [_listener(host, port, lobby) for host in hosts if _has_address(host)]


def _has_address(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
            tried.bind((host, 0))
    except OSError:
        return False
    return True


def _listener(host: str, port: int, lobby: Lobby) -> Listener:
    try:
        return listener(host, port, lobby)
    except (OSError, OverflowError) as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        number = errno.EADDRNOTAVAIL if isinstance(error, socket.gaierror) else getattr(error, "errno", None)
        why = str(getattr(error, "strerror", None) or error)
        raise cannot_listen(number, why, where, "--host and --port") from None


def _url(listener: socket.socket, settings: ServerSettings) -> str:
    scheme = "https" if settings.certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
