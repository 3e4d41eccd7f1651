"""`partc`, with bugs in the handling of certain requests."""

from __future__ import annotations

from typing import Any

from partc.cli.main import main
from partc.runtime.client.client import Client
from partc.runtime.client.request import Request
from partc.serve.answer import Answer

SENT, HEARD = 13, 14
"""First token of a prompt that cannot be sent; of one whose second token cannot be heard."""
READ = 6
"""Likely tokens asked for with each token of an answer whose second token cannot be read."""


class Bug(Exception):
    """Made for tests."""


def _submit(self: Client, prompts: Any, **options: Any) -> Request:
    if prompts[0] == SENT:
        raise Bug("sent")
    return _real_submit(self, prompts, **options)


def _take(self: Request, message: Any) -> list[str]:
    if self.prompts[0][0] == HEARD and self.steps == 1:
        raise Bug("heard")
    return _real_take(self, message)


def _push(self: Answer, token: int, likely: Any = ()) -> str:
    if self.alternatives == READ and self.tokens == 1:
        raise Bug("read")
    return _real_push(self, token, likely)


_real_submit, _real_take, _real_push = Client.submit, Request.take, Answer.push

if __name__ == "__main__":
    Client.submit, Request.take, Answer.push = _submit, _take, _push  # type: ignore[assignment, method-assign]
    main()
