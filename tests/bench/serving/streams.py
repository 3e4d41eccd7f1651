"""Clients that ask an endpoint for streams, as many at once as is asked for, and what they see."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

SETTLE_S = 1.0
"""Time between two loads: what was cancelled is over by then."""
_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Load:
    """What clients ask for, and for how long."""

    prompt: int
    """Tokens of each prompt."""
    tokens: int
    """New tokens of each answer."""
    warm_s: float
    """Time before anything counts: all clients have begun by then."""
    seconds: float
    """Time that counts."""


@dataclass
class Stream:
    """One answer, as its client saw it."""

    begun: float
    came: list[float] = field(default_factory=list)
    """When each token's text came."""


@dataclass(frozen=True)
class Seen:
    """What some clients saw within the time that counts."""

    seconds: float
    tokens: Sequence[int]
    """Of each client."""
    first_s: Sequence[float]
    """Times to the first token, of answers that were asked for meanwhile."""
    between_s: Sequence[float]
    """Times from a token to the next one of its answer."""

    @property
    def tokens_per_s(self) -> float:
        """Of all clients."""
        return sum(self.tokens) / self.seconds


@dataclass
class Endpoint:
    """A server with OpenAI's API."""

    url: str
    vocabulary: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What every request has besides the common fields."""

    def prompt(self, tokens: int) -> list[int]:
        """Random token ids."""
        return [random.randrange(300, self.vocabulary) for _ in range(tokens)]

    def ask(self, prompt: Sequence[int], tokens: int, **fields: Any) -> Iterator[None]:
        """Yields with each token's text; closed before its end, it hangs up.

        Raises:
            SystemExit: the server answers with an error.
        """
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=_PATIENCE_S)
        body = {"prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0, **self.fields}
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/completions", json.dumps({**body, **fields}), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(f"{self.url}: {answer.status}: {answer.read().decode()}")
            for line in answer:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
                    yield
        finally:
            connection.close()

    def stream(self, prompt: Sequence[int], tokens: int, **fields: Any) -> Stream:
        """One answer up to its end."""
        found = Stream(time.perf_counter())
        found.came.extend(time.perf_counter() for _ in self.ask(prompt, tokens, **fields))
        return found


def seen_by(endpoint: Endpoint, clients: int, load: Load) -> Seen:
    """What so many clients see, each of whom asks for answer after answer, with prompts of its own."""
    begun = time.perf_counter()
    start = begun + load.warm_s
    end = start + load.seconds
    streams: list[list[Stream]] = [[] for _ in range(clients)]
    threads = [threading.Thread(target=_client, args=(endpoint, load, end, own)) for own in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(SETTLE_S)
    every = [stream for own in streams for stream in own]
    pairs = [pair for stream in every for pair in zip(stream.came, stream.came[1:], strict=False)]
    return Seen(
        load.seconds,
        [sum(start <= moment < end for stream in own for moment in stream.came) for own in streams],
        [stream.came[0] - stream.begun for stream in every if stream.begun >= start and stream.came],
        [later - earlier for earlier, later in pairs if start <= later < end],
    )


def _client(endpoint: Endpoint, load: Load, end: float, own: list[Stream]) -> None:
    while time.perf_counter() < end:
        stream = Stream(time.perf_counter())
        own.append(stream)
        for _ in endpoint.ask(endpoint.prompt(load.prompt), load.tokens):
            stream.came.append(time.perf_counter())
            if stream.came[-1] >= end:
                break
