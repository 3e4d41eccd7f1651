"""The process of an endpoint: sockets, TLS, the event loop, signals."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from partc.errors import ConfigError, PartcError, RunError
from partc.format.role import Role
from partc.runtime.client.text import Tokenizer
from partc.serve.access import Gate, Limits
from partc.serve.app import Endpoint
from partc.serve.live import Live, PlannedOf
from partc.serve.pooling import read_pooling
from partc.serve.ring import Opener, RingThread, State
from partc.serve.template import Renderer, read_chat

HEADERS_S = 15.0
"""A connection whose first request has not begun by then is closed."""
_GOODBYE_S = 5
"""Time that answers under way have to end after a signal."""
_MOST_HEADER_BYTES = 32 << 10

Tell = Callable[[str, str], None]
"""Called with `listening` and the address, and with each state of the ring and its reason."""


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

    @property
    def is_local(self) -> bool:
        """Whether it listens on the loopback interface alone."""
        return self.host in ("127.0.0.1", "localhost", "::1")


class _Protocol(H11Protocol):
    """HTTP, without patience for connections that say nothing."""

    def connection_made(self, transport: Any) -> None:
        """Give the first request some seconds to come."""
        super().connection_made(transport)
        self.loop.call_later(HEADERS_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def serve(
    build: Path, role: Role, opener: Opener, planned: PlannedOf, settings: ServerSettings, tell: Tell
) -> None:
    """Answer until a signal comes; `planned` is for those who look at the ring.

    Raises:
        ConfigError: a file of `settings` cannot be used.
        RunError: the address cannot be had, or the ring cannot be.
    """
    asyncio.run(_serve(build, role, opener, planned, settings, tell))


async def _serve(
    build: Path, role: Role, opener: Opener, planned: PlannedOf, settings: ServerSettings, tell: Tell
) -> None:
    folder = build / "devices" / role.source
    chat = read_chat(folder / "tokenizer", settings.template)
    ended: list[PartcError] = []

    def on_state(state: State, error: PartcError | None) -> None:
        endpoint.live.tell(state)
        tell(state, error.message if error else "")
        if state == "ended":
            ended.extend([error] if error else [])
            server.should_exit = True

    with Renderer(chat) as renderer, _listening(settings) as listener:
        ring = RingThread(opener, asyncio.get_running_loop(), on_state)
        endpoint = Endpoint(
            role=role,
            name=settings.name or role.model.name,
            tokenizer=Tokenizer(folder),
            chat=chat,
            limits=settings.limits,
            temperature=settings.temperature,
            ring=ring,
            renderer=renderer,
            live=Live(ring, planned),
            pooling=read_pooling(folder / "tokenizer"),
        )
        try:
            server = uvicorn.Server(_config(_gate(endpoint, settings), settings))
            tell("listening", _url(listener, settings))
            ring.start()
            await server.serve(sockets=[listener])
        finally:
            await asyncio.to_thread(ring.close)
    if ended:
        raise ended[0]


def _gate(endpoint: Endpoint, settings: ServerSettings) -> Gate:
    is_local = settings.is_local and not settings.keys
    return Gate(endpoint.app(), settings.keys, is_local, settings.limits.most_connected)


def _config(gate: Gate, settings: ServerSettings) -> uvicorn.Config:
    config = uvicorn.Config(
        gate,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_graceful_shutdown=_GOODBYE_S,
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


def _listening(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        where = f"{settings.host}:{settings.port}"
        hint = "choose another with --host and --port, or stop the process that has it"
        raise RunError(
            f"cannot listen: {getattr(error, 'strerror', None) or error}", where=where, hint=hint
        ) from None


def _url(listener: socket.socket, settings: ServerSettings) -> str:
    scheme = "https" if settings.certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
