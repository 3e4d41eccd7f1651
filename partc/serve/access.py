"""Who may ask, and how much: API keys, hosts, size and time of bodies, requests under way."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from partc.errors import ConfigError
from partc.format.plain_files import read_plain_text
from partc.serve.browsers import IGNORED_HEADER, Browsers, Headers, Pairs, Scope
from partc.serve.errors import ApiError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_S = 30.0
"""A body that has not come by then is given up."""
_MOST_SEEN = 64
"""So many times the limit is read of a body that is too large, and dropped: most clients read no answer before."""
OPEN_PATHS = ("/", "/health")
"""Paths that need no key."""
IGNORED = "partc.ignored"
"""Entry of a scope: the fields of the body that were ignored, which the answer tells."""
_MOST_IGNORED = 64
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Limits:
    """Limits of a server."""

    most_body_bytes: int
    most_waiting: int
    """Answers that may wait for the ring, beside those that it has."""
    request_s: float
    """Seconds that a request may take, its waiting included."""
    most_connected: int = 512
    """Requests under way at once, bodies that are still coming included."""


@dataclass
class Gate:
    """Checks that every request passes first: its framing, host, origin and key, and the number of requests."""

    app: App
    keys: frozenset[bytes]
    """Empty: nobody needs one."""
    is_local: bool
    """Whether names of this machine alone may be asked for: else any web page that a user visits could ask.

    (DNS rebinding: the page's own name leads to 127.0.0.1 all of a sudden.)
    """
    most_connected: int
    browsers: Browsers
    _under_way: int = field(default=0, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, or let the request pass."""
        if scope["type"] != "http":
            return
        headers: Headers = dict(scope["headers"])
        told = self.browsers.headers(scope, headers)

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *told, *_ignored(scope)]
            await send(message)

        try:
            self._check_place(headers)
            early = self.browsers.preflight(scope, headers)
            if early is None:
                self._check(scope, headers)
        except ApiError as error:
            early = error_response(error)
        if early is not None:
            await early(scope, receive, send_with_headers)
            return
        self._under_way += 1
        try:
            await self.app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            pass  # the server ends at once, and this is the whole task: else uvicorn prints a traceback for each
        finally:
            self._under_way -= 1

    def _check_place(self, headers: Headers) -> None:
        """Refuse requests whose end others could see elsewhere, and those for another name than this machine's."""
        if b"transfer-encoding" in headers and b"content-length" in headers:
            message = "Content-Length beside Transfer-Encoding: send one of them"
            raise ApiError(message, code="ambiguous_length", headers={"connection": "close"})
        if self.is_local and not _is_loopback_name(headers.get(b"host", b"localhost").decode("latin-1")):
            message = (
                "this server is for its own machine: ask for localhost, or give it --host and --api-key-file"
            )
            raise ApiError(message, status=403, kind="permission_error", code="wrong_host")

    def _check(self, scope: Scope, headers: Headers) -> None:
        self.browsers.check(scope, headers)
        if scope["path"] in OPEN_PATHS:
            return
        if self._under_way >= self.most_connected:
            message = f"{self._under_way} requests are under way already"
            raise ApiError(message, status=503, kind="server_error", code="overloaded")
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if not self.keys:
            return
        matches = [hmac.compare_digest(given.strip(), key) for key in self.keys]
        if scheme.lower() != b"bearer" or not any(matches):
            message = "no valid API key: send `Authorization: Bearer KEY`"
            raise ApiError(message, status=401, kind="authentication_error", code="invalid_api_key")


def read_keys(path: Path) -> frozenset[bytes]:
    """The keys of a file, one a line; lines that begin with # are comments.

    Raises:
        ConfigError: it cannot be read, others can read it as well, or it holds no key.
    """
    text = read_plain_text(path, ConfigError, "write one key a line, for instance from: openssl rand -hex 24")
    if path.stat().st_mode & 0o077:
        raise ConfigError("other users can read it", where=str(path), hint=f"chmod 600 {path}")
    lines = [line.strip() for line in text.splitlines()]
    keys = frozenset(line.encode() for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError("it holds no key", where=str(path), hint="write one key a line")
    return keys


async def read_bytes(request: Request, most_bytes: int) -> bytes:
    """The body of a request.

    Raises:
        ApiError: it is too large, compressed, no JSON by its type, or does not come.
    """
    data, seen = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                seen += len(chunk)
                if seen > _MOST_SEEN * most_bytes:
                    break
                if seen <= most_bytes:
                    data += chunk
    except TimeoutError:
        message = f"the body did not come within {BODY_S:g} s"
        raise ApiError(message, status=408, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise ApiError("the client went away", status=499) from None
    if seen > most_bytes:
        message = f"the body has more than {most_bytes} bytes"
        raise ApiError(message, status=413, code="body_too_large", headers={"connection": "close"})
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"the body is encoded as {encoding}: send it as it is, without Content-Encoding"
        raise ApiError(
            message, status=415, code="unsupported_encoding", headers={"accept-encoding": "identity"}
        )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Other types, and none, are what any page may send without asking the browser first.
        message = f"the body is {kind or 'of no type'}: send JSON, with `Content-Type: application/json`"
        raise ApiError(message, status=415, code="unsupported_media_type")
    return bytes(data)


def error_response(error: ApiError) -> JSONResponse:
    """The answer that tells an error."""
    return JSONResponse(error.body(), error.status, headers=dict(error.headers))


def _ignored(scope: Scope) -> Pairs:
    """The header that tells which fields were ignored."""
    names = [quote(name[:64]) for name in scope.get(IGNORED, ())][:_MOST_IGNORED]
    return [(IGNORED_HEADER.encode(), ", ".join(names).encode())] if names else []


def _is_loopback_name(host: str) -> bool:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name.lower() in _LOOPBACK_NAMES
