"""The servers that are compared: `partc serve`, and that of llama.cpp."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from partc.format.build import Model
from partc.format.role import source_role
from tests.bench.serving.streams import Endpoint

_PATIENCE_S = 120.0


@contextmanager
def partc_server(build: Path, runner: str) -> Iterator[Endpoint]:
    """`partc serve` until the block ends, as users start it, with one of the two runners."""
    model = source_role(build).model
    command = [
        sys.executable,
        "-m",
        "partc.cli",
        "serve",
        str(build),
        "--port",
        "0",
        "--json",
        "--runner",
        runner,
    ]
    with subprocess.Popen([*command, "--queue", "64"], stdout=subprocess.PIPE, text=True) as process:
        try:
            url = _told(process, "listening")
            _told(process, "ready")
            yield Endpoint(url, model.vocab_size or 256, {"model": model.name})
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def llama_server(program: Path, gguf: Path, model: Model, threads: int) -> Iterator[Endpoint]:
    """llama.cpp's server with as many slots for as many tokens as a build; all else is its default.

    But it keeps no copies of prompts besides its slots, which would only cost time here.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [str(program), "--model", str(gguf), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--parallel", str(model.max_requests), "--cache-ram", "0"]
    command += ["--ctx-size", str(model.max_requests * model.max_sequence), "--threads", str(threads)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            _await_health(url, process)
            yield Endpoint(url, model.vocab_size or 256, {"model": "any", "ignore_eos": True})
        finally:
            process.terminate()


def _await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"llama.cpp's server does not stand: {process.args!r}")


def _told(process: subprocess.Popen[str], state: str) -> str:
    """The address that comes with a line about a state."""
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["state"] == state:
            return str(told.get("url", ""))
    raise SystemExit(f"the server ended before it was {state}")
