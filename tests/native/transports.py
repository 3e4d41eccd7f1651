"""A transport of the native runner in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partc.format.codec import encode
from partc.format.messages import Cancel, Message

LIMIT = 1 << 20
PATIENCE_S = 5.0
WAIT_S = 30.0
HELLO: Message = Cancel(ticket=bytes(range(16)))


class Native:
    """A process of native/tests/shell/transport.cpp."""

    def __init__(
        self, program: Path, bundle: Path | None, kind: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        """Start it; `kind` is the transport: zmq or zmtp."""
        command = [str(program), str(bundle or "-"), str(LIMIT), str(patience_s)]
        pipe = subprocess.PIPE
        env = {**os.environ, "PARTC_TRANSPORT": kind}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        found: dict[str, Any] = json.loads(line)
        return found

    def listen(self) -> str:
        return str(self.ask(listen="127.0.0.1:0")["address"])

    def poll(self) -> list[list[Any]]:
        found: list[list[Any]] = self.ask(poll=20)["events"]
        return found

    def send(
        self, origin: str, message: Message, frames: Sequence[bytes] = (), *, route: bool = False
    ) -> bool:
        hexadecimal = [frame.hex() for frame in frames]
        return bool(
            self.ask(send=origin, route=route, header=encode(message).hex(), frames=hexadecimal)["taken"]
        )

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def limit_files(self, count: int) -> None:
        """Let it open no more files than so many."""
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (count, count))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        _, printed = self._process.communicate(timeout=30)
        assert self._process.returncode == 0, printed


def device(build: Path, name: str) -> Path:
    return build / "devices" / name


def until(done: Callable[[], object]) -> Any:
    """What `done` gives as soon as it is true."""
    end = time.monotonic() + WAIT_S
    while not (found := done()):
        assert time.monotonic() < end, "it did not come"
    return found
