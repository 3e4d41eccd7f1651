"""The middle device of a small build alone, all of whose neighbours are the kit."""

from __future__ import annotations

import contextlib
import json
import selectors
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from partc.conformance.bench import READY_S, Bench
from partc.conformance.bundles import HIDDEN
from partc.conformance.findings import Mismatch, same
from partc.conformance.peer import Peer, bytes_of
from partc.format.message_parts import Opening, Row, Sampling, TensorSpec
from partc.format.messages import AnyMessage, Data, Hello, Ready, Welcome
from partc.format.role import load_role
from partc.runtime.client.runners import start_runner
from partc.runtime.core.events import Received
from partc.runtime.engines.null import NullEngine
from partc.runtime.shell.process import RunnerProcess

OWN = "b"
_TYPE = "float32"


@dataclass
class Driven:
    """A device that computes for `source` and sends to `last`."""

    process: RunnerProcess
    address: str
    source: Peer
    last: Peer
    engine: NullEngine
    hellos: dict[str, Hello]
    """From the device: by the peer that it greeted."""
    last_address: str
    """Where `last` listens."""

    def data(
        self, *, seq: int, request: int = 1, step: int = 0, position: int = 0, tokens: int = 1, **changes: Any
    ) -> Data:
        """A message of a step of a request of one sequence, in slot 0; `changes`: fields that are other ones."""
        plain = Data(
            session=0,
            epoch=0,
            seq=seq,
            phase="decode" if step else "prefill",
            dims={"batch": 1, "sequence": tokens},
            rows=(Row(request, 0, step, position, tokens),),
            values=(TensorSpec("hidden_1", _TYPE, (1, tokens, HIDDEN)),),
            open=() if step else (Opening(request, Sampling()),),
        )
        return replace(plain, **changes)

    def give(self, message: Data, *frames: bytes) -> None:
        """Send what the source would."""
        self.source.send(OWN, message, *(frames or (self.tensor(message).tobytes(),)))

    @staticmethod
    def tensor(message: Data) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The value of a message: numbers that belong to its request and step."""
        rows = message.dims["sequence"]
        first = message.rows[0]
        return (np.arange(rows * HIDDEN, dtype=np.float32) + first.request * 7 + first.step * 31).reshape(
            1, rows, HIDDEN
        )

    def expected(self, message: Data) -> bytes:
        """The values that the device must send on, when all earlier steps have been asked for in order."""
        first = message.rows[0]
        dims = {"batch": 1, "sequence": message.dims["sequence"]}
        if first.step == 0 and first.position == 0:
            self.engine.reset(0, dims)
        position = np.array([first.position], np.int64)
        (made,) = self.engine.run("part_1", 0, [self.tensor(message), position], dims)
        return made.tobytes()

    def taken(self) -> Received:
        """The next values that it sends to the last device."""
        return self.last.received(Data)

    def computes(self, message: Data) -> Data:
        """Give a message, and hold what follows against the manuals; the message that came."""
        self.give(message)
        came = self.taken()
        found = came.message
        assert isinstance(found, Data)
        same(bytes_of(came.frames), [self.expected(message)], f"hidden_2 of step {message.rows[0].step}")
        same(found.rows, message.rows, "rows of what was sent on")
        same(
            (found.phase, found.dims, found.open),
            (message.phase, message.dims, message.open),
            "phase, dims and open",
        )
        spec = TensorSpec("hidden_2", _TYPE, (1, message.dims["sequence"], HIDDEN))
        same(found.values, (spec,), "values of what was sent on")
        return found


@contextlib.contextmanager
def driven(bench: Bench) -> Iterator[Driven]:
    """Start the device, and be all that it speaks with, until it is ready."""
    build = bench.build("chain")
    folder = build / "devices" / OWN
    command = [
        *bench.command,
        "--stdio",
        "--bundle",
        str(folder),
        "--listen",
        "127.0.0.1:0",
        "--patience",
        "20",
    ]
    process = start_runner(command)
    try:
        with Peer(build, "a") as source, Peer(build, "c") as last:
            addresses = {peer.name: peer.transport.listen("127.0.0.1:0") for peer in (source, last)}
            address = str(told(process, "listening"))
            process.tell(f"{json.dumps({'peers': {**addresses, OWN: address}})}\n".encode())
            greeted = {}
            for peer in (source, last):
                greeted[peer.name] = peer.received(Hello)
                peer.welcome(greeted[peer.name])
            source.connect(OWN, address)
            if not isinstance(answer := source.greet(OWN), Welcome):
                raise Mismatch(f"the source is not welcome: {answer}")
            source.received(Ready)
            role = load_role(folder)
            engine = NullEngine(role, folder)
            engine.load("part_1")
            hellos = {name: _hello(each.message) for name, each in greeted.items()}
            yield Driven(process, address, source, last, engine, hellos, addresses["c"])
    finally:
        process.popen.kill()
        process.popen.wait()
        process.close()


def _hello(message: AnyMessage) -> Hello:
    assert isinstance(message, Hello)
    return message


def told(process: RunnerProcess, key: str) -> Any:
    """The value that a runner tells on its standard output under a key; raises the error of one that ends instead."""
    end = time.monotonic() + READY_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.output, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            lines = process.read()
            if lines is None:
                raise process.failure(OWN)
            for line in lines:
                if key in line:
                    return line[key]
    raise Mismatch(f"no line with {key!r} on its standard output within {READY_S:.0f} s")


def steps(device: Driven, count: int, request: int = 1, seq: int = 0) -> Sequence[Data]:
    """Messages of a prompt of two tokens and of the steps behind it."""
    first = device.data(seq=seq, request=request, tokens=2)
    return [
        first,
        *(device.data(seq=seq + n, request=request, step=n, position=n + 1) for n in range(1, count)),
    ]
