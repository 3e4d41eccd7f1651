"""An endpoint under mixed load while its runners are killed, the source's too: what was lost, grew, or was slow.

    python -m tests.living.serving BUILD [--minutes 30] [--every 60] [--seed 1]

Clients stream, ask for whole answers, hold conversations, and go away in the middle, with a pause of up to half a
second between two requests. Every `--every` seconds a runner is killed, in turn. `/health` is asked ten times a second.
Prints JSON: answers by outcome, tokens, requests begun again, seconds of `/health`, and resident memory of the server
and its runners over time.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from partc.format.role import source_role

_HEALTH_S = 0.1
_SAMPLE_S = 10.0
_PAUSE_S = 0.5
_JSON = {"Content-Type": "application/json"}
_WORDS = ("Once upon a time", "The little dog", "Mia had a red ball", "One day, Leo", "There was a brave")


@dataclass
class Seen:
    """What clients saw."""

    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    health_s: list[float] = field(default_factory=list)
    """Seconds of each answer of `/health`."""
    memory_mib: list[tuple[float, int, int]] = field(default_factory=list)
    """(seconds, server, all runners)."""
    kills: int = 0


def main() -> None:
    """Serve, load, kill; print JSON."""
    parser = argparse.ArgumentParser(description="An endpoint whose runners are killed.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(soak(options.build, options.minutes * 60, options.every, options.seed), indent=1))


def soak(build: Path, seconds: float, every_s: float, seed: int) -> dict[str, Any]:
    """The figures of a run."""
    seen, ending = Seen(), threading.Event()
    with _serving(build) as (process, url):
        model = _get_json(url, "/v1/models")["data"][0]["id"]
        clients: list[Callable[[random.Random, Seen], None]] = [
            lambda rng, seen: _stream(url, model, rng, seen, leaves=False),
            lambda rng, seen: _stream(url, model, rng, seen, leaves=True),
            lambda rng, seen: _whole(url, model, rng, seen),
            lambda rng, seen: _turns(url, model, rng, seen),
        ]
        threads = [
            threading.Thread(target=_repeat, args=(client, random.Random(seed + place), seen, ending))
            for place, client in enumerate(clients)
        ]
        threads.append(threading.Thread(target=_watch_health, args=(url, seen, ending)))
        threads.append(threading.Thread(target=_watch_memory, args=(process.pid, seen, ending)))
        for thread in threads:
            thread.start()
        _kill_in_turn(process.pid, source_role(build).ring, seconds, every_s, seen)
        ending.set()
        for thread in threads:
            thread.join()
        metrics = _metrics(url)
    return _figures(seen, metrics)


def _figures(seen: Seen, metrics: dict[str, float]) -> dict[str, Any]:
    health = sorted(seen.health_s)
    step = max(1, len(seen.memory_mib) // 10)
    return {
        "outcomes": seen.outcomes,
        "errors": seen.errors,
        "kills": seen.kills,
        "begun_again": metrics["partc_begun_again_total"],
        "tokens": metrics["partc_generated_tokens_total"],
        "health": {
            "answers": len(health),
            "within_50_ms": sum(each <= 0.05 for each in health) / len(health),
            "longest_ms": round(1e3 * health[-1], 1),
        },
        "memory_mib": [[round(each[0]), *each[1:]] for each in seen.memory_mib[::step]],
    }


def _kill_in_turn(server: int, ring: Sequence[str], seconds: float, every_s: float, seen: Seen) -> None:
    end = time.monotonic() + seconds
    for device in itertools.cycle(ring):
        left = end - time.monotonic()
        time.sleep(max(0.0, min(every_s, left)))
        if left <= every_s:
            return
        if (pid := _runner(server, device)) is not None:
            os.kill(pid, signal.SIGKILL)
            seen.kills += 1


def _repeat(
    client: Callable[[random.Random, Seen], None], rng: random.Random, seen: Seen, ending: threading.Event
) -> None:
    while not ending.is_set():
        try:
            client(rng, seen)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            seen.outcomes["lost"] += 1
            seen.errors[f"{type(error).__name__}: {error}"] += 1
        ending.wait(rng.uniform(0.0, _PAUSE_S))


def _stream(url: str, model: str, rng: random.Random, seen: Seen, *, leaves: bool) -> None:
    body = {"model": model, "prompt": rng.choice(_WORDS), "max_tokens": rng.randint(20, 160), "stream": True}
    connection = _connect(url)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), _JSON)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {answer.read(200)!r}")
        leave_after, chunks = rng.randint(2, 30), 0
        for line in answer:
            if b'"error"' in line:
                raise ValueError(line.decode())
            if line.startswith(b"data: [DONE]"):
                seen.outcomes["streamed"] += 1
                return
            chunks += line.startswith(b"data: ")
            if leaves and chunks == leave_after:
                seen.outcomes["left"] += 1
                return
        raise ValueError("the stream ended without [DONE]")
    finally:
        connection.close()


def _whole(url: str, model: str, rng: random.Random, seen: Seen) -> None:
    body = {"model": model, "prompt": rng.choice(_WORDS), "max_tokens": rng.randint(5, 60)}
    _post(url, "/v1/completions", body)
    seen.outcomes["whole"] += 1


def _turns(url: str, model: str, rng: random.Random, seen: Seen) -> None:
    """Texts that go on behind one another, as the turns of a conversation do."""
    text = rng.choice(_WORDS)
    for _ in range(3):
        told = _post(url, "/v1/completions", {"model": model, "prompt": text, "max_tokens": 30})
        text += told["choices"][0]["text"]
        seen.outcomes["turns"] += 1


def _watch_health(url: str, seen: Seen, ending: threading.Event) -> None:
    while not ending.wait(_HEALTH_S):
        begun = time.monotonic()
        connection = _connect(url)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            seen.errors[f"health: {error}"] += 1
        finally:
            connection.close()
        seen.health_s.append(time.monotonic() - begun)


def _watch_memory(server: int, seen: Seen, ending: threading.Event) -> None:
    begun = time.monotonic()
    while not ending.wait(_SAMPLE_S):
        runners = sum(map(_resident_mib, _children(server)))
        seen.memory_mib.append((time.monotonic() - begun, _resident_mib(server), runners))


@contextmanager
def _serving(build: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-P", "-m", "partc.cli", "serve", str(build), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        while json.loads(process.stdout.readline())["state"] != "ready":
            pass
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield process, url
    finally:
        process.terminate()
        process.wait(30)


def _connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)


def _post(url: str, path: str, body: Any) -> Any:
    connection = _connect(url)
    try:
        connection.request("POST", path, json.dumps(body), _JSON)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {told['error']['message']}")
        return told
    finally:
        connection.close()


def _get_json(url: str, path: str) -> Any:
    connection = _connect(url)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _metrics(url: str) -> dict[str, float]:
    connection = _connect(url)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _runner(server: int, device: str) -> int | None:
    for pid in _children(server):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if any(word.endswith(f"/devices/{device}") for word in words):
            return pid
    return None


def _resident_mib(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except OSError:
        return 0


if __name__ == "__main__":
    main()
