"""The log of requests, around the whole endpoint: how each ended. Neither bodies nor queries are ever in it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from partc.runtime.shell.log import LogWriter
from partc.serve.access import App, Receive, Send
from partc.serve.browsers import Scope

OUTCOME = "partc.outcome"
"""Key of a scope under which a stream leaves its outcome: its status was told long before."""
_LONGEST_PATH = 100
_GONE = 499


@dataclass(slots=True)
class RequestLog:
    """An ASGI application around another; scrapes and looks at the page are not told, unless they are refused."""

    app: App
    log: LogWriter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, and tell of its end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            if scope["method"] == "POST" or status >= 400:
                self._tell(scope, status, time.monotonic() - began)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        client = scope.get("client")
        fields = {
            "path": scope["path"][:_LONGEST_PATH],
            "outcome": scope.get(OUTCOME) or outcome_of(status),
            "status": status,
            "client": client[0] if client else "",
            "seconds": seconds,
        }
        self.log.write("answered", fields)


def outcome_of(status: int) -> str:
    """The outcome that a status tells; 0: there was no answer."""
    if status in (0, _GONE):
        return "cancelled"
    if status < 400:
        return "ok"
    return "refused" if status < 500 else "failed"
