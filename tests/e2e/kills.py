"""A request to a ring of processes, during which one of them is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from partc.format.message_parts import Sampling
from partc.runtime.client.launch import launch_local

TOKENS = 24


def drawn(build: Path, victim: str | None = None, at: int = 6, seed: int = 5) -> tuple[tuple[int, ...], ...]:
    """The tokens of a request; `victim` is killed behind token `at`, and nobody starts it again."""
    with launch_local(build, restart=False) as ring, ring.client() as client:
        count = 0

        def on_token(tokens: object) -> None:
            nonlocal count
            count += 1
            if victim and count == at:
                os.kill(ring.pids[victim], signal.SIGKILL)

        request = client.submit(
            [list(range(3, 14))],
            max_new_tokens=TOKENS,
            sampling=Sampling(temperature=1.0, seed=seed),
            ignore_eos=True,
            on_token=on_token,
        )
        return tuple(map(tuple, request.result().tokens))
