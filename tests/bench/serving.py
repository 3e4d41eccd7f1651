"""Clients of an endpoint at once, and the second turn of a conversation, measured over HTTP.

    python -m tests.bench.serving BUILD [--clients 1 4 16] [--requests 4] [--prompt 64] [--tokens 64] [--turn 400]

Starts `partc serve BUILD`, as users do. Every client asks for stream after stream of a prompt of its own; for each
number of clients: tokens per second of all, time to the first token and between chunks of text (median and 99th
percentile), and the most tokens of a client over the least. Then a prompt of `--turn` tokens is answered, and what
follows it as the next turn, with the rows of the first and without (`deterministic`), in turns. Prints JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from partc.format.role import source_role
from tests.bench.speed.machine import Watch

_ROUNDS = 5


@dataclass
class Stream:
    """One answer, as its client saw it."""

    begun: float
    came: list[float] = field(default_factory=list)
    """When each chunk with text came."""
    tokens: int = 0

    @property
    def first_s(self) -> float:
        """Time to the first text."""
        return self.came[0] - self.begun

    @property
    def between_s(self) -> list[float]:
        """Times between chunks."""
        return [later - earlier for earlier, later in zip(self.came, self.came[1:], strict=False)]


def main() -> None:
    """Serve, measure, print JSON."""
    parser = argparse.ArgumentParser(description="Clients of an endpoint, and a second turn.")
    parser.add_argument("build", type=Path, help="what partc compile wrote")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16], help="clients at once (1 4 16)")
    parser.add_argument("--requests", type=int, default=4, help="streams of each client (4)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt (64)")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each, at most (64)")
    parser.add_argument("--turn", type=int, default=400, help="tokens before the second turn (400)")
    options = parser.parse_args()
    watch = Watch()
    model = source_role(options.build).model
    vocabulary = model.vocab_size or 256
    command = [sys.executable, "-m", "partc.cli", "serve", str(options.build), "--port", "0", "--json"]
    with subprocess.Popen([*command, "--queue", "64"], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = _await(process, "listening")
            _await(process, "ready")
            ask = _Asker(url, vocabulary)
            ask(ask.prompt(options.prompt), options.tokens)  # nothing is cold
            loads = {count: _load(ask, count, options) for count in options.clients}
            room = model.max_sequence - 32
            report = {"clients": loads, "second_turn": _second_turn(ask, min(options.turn, room))}
        finally:
            process.terminate()
            process.communicate()
    report["machine"] = watch.machine().sentence
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


@dataclass
class _Asker:
    """Asks an endpoint for streams."""

    url: str
    vocabulary: int

    def prompt(self, tokens: int) -> list[int]:
        return [random.randrange(3, self.vocabulary) for _ in range(tokens)]

    def __call__(self, prompt: Sequence[int], tokens: int, **fields: Any) -> Stream:
        """One answer; raises where it is not one."""
        place = urlsplit(self.url)
        body = {
            "model": self._model(), "prompt": prompt, "max_tokens": tokens, "stream": True,
            "stream_options": {"include_usage": True}, "temperature": 0, **fields,
        }  # fmt: skip
        connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=600)
        stream = Stream(time.perf_counter())
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.read().decode()}")
        for line in answer:
            data = line.removeprefix(b"data: ").strip()
            if not data.startswith(b"{"):
                continue
            chunk = json.loads(data)
            if chunk.get("usage"):
                stream.tokens = chunk["usage"]["completion_tokens"]
            elif chunk["choices"][0]["text"]:
                stream.came.append(time.perf_counter())
        connection.close()
        return stream

    def _model(self) -> str:
        if not hasattr(self, "_name"):
            place = urlsplit(self.url)
            connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
            connection.request("GET", "/v1/models")
            self._name = json.load(connection.getresponse())["data"][0]["id"]
            connection.close()
        return str(self._name)


def _load(ask: _Asker, clients: int, options: argparse.Namespace) -> dict[str, float]:
    """Figures of so many clients at once."""
    streams: list[list[Stream]] = [[] for _ in range(clients)]

    def work(own: list[Stream]) -> None:
        for _ in range(options.requests):
            own.append(ask(ask.prompt(options.prompt), options.tokens))

    threads = [threading.Thread(target=work, args=(own,)) for own in streams]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    every = [stream for own in streams for stream in own]
    firsts = [stream.first_s for stream in every if stream.came]
    between = [gap for stream in every for gap in stream.between_s]
    shares = [sum(stream.tokens for stream in own) for own in streams]
    return {
        "tokens_per_s": round(sum(shares) / seconds, 1),
        "first_token_ms_median": _ms(statistics.median(firsts)),
        "first_token_ms_99": _ms(_high(firsts)),
        "between_tokens_ms_median": _ms(statistics.median(between)),
        "between_tokens_ms_99": _ms(_high(between)),
        "most_over_least": round(max(shares) / max(1, min(shares)), 2),
    }


def _second_turn(ask: _Asker, tokens: int) -> dict[str, float]:
    """Time to the first token of a turn behind `tokens` tokens, with their rows and without."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_ROUNDS):
        first = ask.prompt(tokens)
        second = [*first, *ask.prompt(16)]
        ask(first, 1)
        for alone in (False, True):
            found[alone].append(ask(second, 1, deterministic=alone).first_s)
    kept, anew = statistics.median(found[False]), statistics.median(found[True])
    return {"tokens": tokens, "kept_ms": _ms(kept), "anew_ms": _ms(anew), "ratio": round(kept / anew, 3)}


def _await(process: subprocess.Popen[str], state: str) -> str:
    """The address or reason of a line that tells a state."""
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["state"] == state:
            return str(told.get("url", ""))
    raise SystemExit(f"the server ended before it was {state}")


def _high(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 2)


if __name__ == "__main__":
    main()
