"""`partc`, with bugs in the handling of certain requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partc.cli.main import main
from partc.runtime.client.client import Client
from partc.runtime.client.query import Query
from partc.runtime.client.request import Request
from partc.runtime.client.results import Tokens
from partc.serve.answer import Answer

SENT, HEARD = 13, 14
"""First token of a prompt that cannot be sent; of one whose second token cannot be heard."""
READ = 6
"""Likely tokens asked for with each token of an answer whose second token cannot be read."""


class Bug(Exception):
    """Made for tests."""


def _begin(self: Client, query: Query, on_token: Callable[[Tokens], None] | None = None) -> Request:
    if query.prompts == [[SENT]]:
        raise Bug("sent")
    return _real_begin(self, query, on_token)


def _take(self: Request, message: Any) -> list[str]:
    if self.prompts[0][0] == HEARD and self.steps == 1:
        raise Bug("heard")
    return _real_take(self, message)


def _push(self: Answer, token: int, likely: Any = ()) -> str:
    if self.alternatives == READ and self.tokens == 1:
        raise Bug("read")
    return _real_push(self, token, likely)


_real_begin, _real_take, _real_push = Client.begin, Request.take, Answer.push

if __name__ == "__main__":
    Client.begin, Request.take, Answer.push = _begin, _take, _push  # type: ignore[method-assign]
    main()
