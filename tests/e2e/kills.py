"""A request to a ring of processes, during which one of them is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from partc.format.message_parts import Sampling
from partc.runtime.client.client import Client
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Result

TOKENS = 24


def drawn(
    build: Path, victim: str | None = None, at: int = 6, seed: int = 5, texts: int = 1
) -> tuple[tuple[int, ...], ...]:
    """The tokens of as many requests; `victim` is killed behind token `at`.

    Nobody starts it again, unless there is another request for it.
    """
    with launch_local(build, restart=texts > 1) as ring, ring.client() as client:
        count = 0

        def on_token(tokens: object) -> None:
            nonlocal count
            count += 1
            if victim and count == at:
                os.kill(ring.pids[victim], signal.SIGKILL)

        return tuple(row for _ in range(texts) for row in drawn_by(client, seed, on_token))


def drawn_by(
    client: Client, seed: int = 5, on_token: Callable[[object], None] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The tokens of one request to a ring that runs."""
    return tuple(map(tuple, answered(client, seed, on_token).tokens))


def answered(
    client: Client,
    seed: int = 5,
    on_token: Callable[[object], None] | None = None,
    *,
    drafts: bool = True,
    expected: Sequence[int] = (),
) -> Result:
    """The same with all that is known of it; `expected`: what guesses are taken from."""
    request = client.submit(
        [list(range(3, 14))],
        max_new_tokens=TOKENS,
        sampling=Sampling(temperature=1.0, seed=seed),
        ignore_eos=True,
        on_token=on_token,
        drafts=drafts,
        expected=expected,
    )
    return request.result()
