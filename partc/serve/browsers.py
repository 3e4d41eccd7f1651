"""Requests that browsers send: the origins whose pages may ask, and the token with which a page may change the ring.

A browser lets any page send requests to this machine, and says where they come from (`Origin`, `Sec-Fetch-Site`).

| request | without keys | with keys |
|---|---|---|
| of a program: neither header | passes | needs a key |
| of the server's own page | passes; a move needs the page's token | needs a key |
| of a page of `--cors-origin`, for the API | passes; the page may read the answer | needs a key |
| of any other page | 403 | needs a key, and the page can read nothing |

A link on another page may lead to `/`, which says and changes nothing by itself.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response

from partc.errors import ConfigError
from partc.serve.errors import ApiError

Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]

TOKEN_HEADER = "partc-page-token"
"""Header with which the server's own page shows its token."""
IGNORED_HEADER = "partc-ignored-fields"
_FOREIGN_SITES = (b"cross-site", b"same-site")
"""Another port of this machine is the same site, and another origin."""
_API = ("/v1/", "/health")
"""Paths for pages of other origins; the page, and so its token, is not among them."""
_EXPOSED = f"{IGNORED_HEADER}, retry-after".encode()
_PORTS = {"http": 80, "https": 443}
"""Scheme → its port, which browsers leave out."""
_PREFLIGHT_S = b"600"
"""Time for which a browser may remember what it was told."""


@dataclass(frozen=True)
class Browsers:
    """Rights of web pages."""

    origins: frozenset[str]
    """Other origins whose pages may use the API."""
    has_keys: bool
    """Whether every request needs a key; no page of others has one."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """The token of the server's own page."""

    def check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what a page elsewhere sends.

        Raises:
            ApiError: status 403.
        """
        if self.has_keys or self.is_allowed(scope, headers) or not _is_foreign(scope, headers):
            return
        raise _refusal(headers)

    def is_allowed(self, scope: Scope, headers: Headers) -> bool:
        """Whether it is of a page of `--cors-origin`, for the API."""
        path: str = scope["path"]
        return _origin(headers) in self.origins and path.startswith(_API)

    def preflight(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a browser that asks what a page may send; None: it is another request.

        Raises:
            ApiError: the page is none of those that may.
        """
        if scope["method"] != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        if not self.is_allowed(scope, headers):
            raise _refusal(headers)
        wanted = headers.get(b"access-control-request-headers", b"")
        told = {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": wanted.decode("latin-1"),
            "access-control-max-age": _PREFLIGHT_S.decode(),
        }
        if headers.get(b"access-control-request-private-network") == b"true":
            told["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=told)

    def headers(self, scope: Scope, headers: Headers) -> Pairs:
        """Headers of the answer, by which a browser lets the page read it."""
        if not self.is_allowed(scope, headers):
            return []
        return [
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]

    def check_move(self, headers: Mapping[str, str]) -> None:
        """Refuse a change of the ring that a browser asks for, unless its page was loaded from this server.

        Raises:
            ApiError: status 403.
        """
        if self.has_keys or not ("origin" in headers or "sec-fetch-site" in headers):
            return
        given = headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            message = "the ring is changed from this server's own page alone: load the page again"
            raise ApiError(message, status=403, kind="permission_error", code="wrong_page_token")

    def with_token(self, page: bytes) -> bytes:
        """The page with its token, which it needs where there are no keys."""
        return page if self.has_keys else page.replace(b"PAGE_TOKEN", self.token.encode(), 1)


def read_origins(given: Sequence[str]) -> frozenset[str]:
    """Origins as browsers write them: scheme, host, and port unless it is the scheme's own.

    Raises:
        ConfigError: one of them is none.
    """
    return frozenset(_read_origins(given))


def _read_origins(given: Sequence[str]) -> Iterator[str]:
    hint = "give scheme and host of the page, as in https://chat.example or http://localhost:3000"
    for text in given:
        if text == "*":
            raise ConfigError("every page could use this server", where="--cors-origin *", hint=hint)
        origin = _read_origin(text)
        if origin is None:
            raise ConfigError("this is no origin", where=f"--cors-origin {text}", hint=hint)
        yield origin


def _read_origin(text: str) -> str | None:
    """An origin as browsers write it; None: the text is none."""
    try:
        parts = urlsplit(text.rstrip("/"))
        port = parts.port
    except ValueError:  # brackets that do not close, a port that is no number
        return None
    if (
        not (parts.scheme and parts.hostname)
        or parts.path
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS.get(parts.scheme)) else f":{port}")


def _origin(headers: Headers) -> str | None:
    origin = headers.get(b"origin")
    return None if origin is None else origin.decode("latin-1").lower()


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    host = headers.get(b"host", b"").decode("latin-1").lower()
    if _origin(headers) not in (None, f"{scope['scheme']}://{host}"):
        return True
    return headers.get(b"sec-fetch-site") in _FOREIGN_SITES and not _is_visit(scope, headers)


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Whether somebody follows a link to the page."""
    is_page = scope["method"] == "GET" and scope["path"] == "/"
    return (
        is_page
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )


def _refusal(headers: Headers) -> ApiError:
    who = _origin(headers) or "another site"
    message = f"pages of {who} may not use this server: start it with --cors-origin ORIGIN to let them"
    return ApiError(message, status=403, kind="permission_error", code="foreign_origin")
