"""`partc-runner --measure`: a device that times what its bundle holds, for `partc profile`.

The bundle is an ordinary one, in which every device is a source, so that the client of the build may talk to
each of them: same keys, same handshake, same engines. Two requests are understood (docs/wire.md):

| message | asks for |
| --- | --- |
| `measure` | a sub-module timed under given sizes, alone, as often as wanted (EdgeShard III) |
| `join` | to be one of a ring of one or two devices, for the cost of hops (`measure_ring.py`) |

Sub-modules are loaded one after the other: the last one is let go before the next is read, so that a model
may be measured on a device that cannot hold it. Before every repeat other memory is read, as much as the rest
of the model has: in a ring the weights of a sub-module have left the caches until its next turn, too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import PartcError, RunError
from partc.format.dtypes import DTYPES, Array, as_float32
from partc.format.files import verify_files
from partc.format.role import Role, load_role
from partc.runtime.core.sampling import Sampling, sample
from partc.runtime.engines.contract import Engine, load_engine
from partc.runtime.links import Control, Failed, LinkEvent, Links
from partc.runtime.measure.ring import RingRunner, ring_role
from partc.runtime.shell.cores import architecture
from partc.runtime.shell.keys import CLIENT, load_device_keys
from partc.runtime.shell.settings import Settings, listen_address, stop_signals
from partc.runtime.shell.transport import Input, Transport
from partc.runtime.source import problem
from partc.runtime.wire import Fields, Step, check_step, frame_limit

MOST_REPEATS = 1000
MOST_TOUCHED = 1 << 30
"""The most memory that is read between repeats, bytes."""
_MOST_THREADS = 16


class Bench:
    """The sub-modules of a bundle, one of them loaded."""

    def __init__(self, manifest: Role, folder: Path) -> None:
        """Nothing is loaded yet."""
        self._manifest = manifest
        self._folder = folder
        self._name = ""
        self._engine: Engine | None = None
        self._other = np.zeros(0, np.float32)
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))

    def measure(self, fields: Fields) -> dict[str, Any]:
        """Answer a `measure` request: seconds of each repeat, of loading, and of clearing the states.

        Raises:
            RunError: a field is not what the bundle allows, or the engine failed.
            BundleError: the engine cannot read the sub-module.
        """
        name, logits = fields["submodule"], fields["sample"]
        module = self._manifest.submodules.get(name)
        if module is None:
            raise RunError(f"{name!r:.60} is not a sub-module of this bundle")
        if logits and logits not in module.outputs:
            raise RunError(f"{logits!r:.60} is no output of {name}")
        if not 1 <= fields["repeats"] <= MOST_REPEATS or fields["touch_bytes"] > MOST_TOUCHED:
            raise RunError(f"at most {MOST_REPEATS} repeats and {MOST_TOUCHED} bytes between them")
        step = Step(
            0, 0, 1, "decode", fields["dims"], tuple(fields["position"]), tuple(fields["length"]), None
        )
        check_step(step, self._manifest)
        inputs = [self._input(item, step) for item in module.inputs]
        load_s = self._load(name)
        assert self._engine is not None
        began = time.perf_counter()
        self._engine.reset(0, step.dims)
        reset_s = time.perf_counter() - began
        place = module.outputs.index(logits) if logits else None
        repeats = [
            self._once(name, inputs, step, place, fields["touch_bytes"]) for _ in range(fields["repeats"])
        ]
        seconds, delays = zip(*repeats, strict=True)
        return {"load_s": load_s, "reset_s": reset_s, "seconds": seconds, "delays": delays}

    def _once(
        self, name: str, inputs: Sequence[Array], step: Step, logits: int | None, other: int
    ) -> tuple[float, float]:
        """Seconds of one repeat, and for how long of them threads of this process waited for a core."""
        assert self._engine is not None
        self._touch(other)
        delay = waited_s()
        began = time.perf_counter()
        outputs = self._engine.run(name, 0, inputs, step.dims)
        if logits is not None:
            declared = self._manifest.types[self._manifest.submodules[name].outputs[logits]]
            values = as_float32(outputs[logits], declared.dtype)
            sample(values[:, 0, :], Sampling(), step.position)
        seconds = time.perf_counter() - began
        return seconds, max(0.0, waited_s() - delay)

    def _load(self, name: str) -> float:
        """Load a sub-module in the place of the one before; seconds."""
        if name == self._name:
            return 0.0
        self._name, self._engine = "", None
        gc.collect()
        began = time.perf_counter()
        alone = self._manifest.changed(submodules=(self._manifest.submodules[name],))
        self._engine = load_engine(alone, self._folder)
        self._name = name
        return time.perf_counter() - began

    def _input(self, name: str, step: Step) -> Array:
        """The step's own inputs as they would be; anything else as numbers of an ordinary size."""
        given = {
            "position": step.position,
            "length": step.length,
            "index": range(step.dims.get("sequence", 1)),
        }
        declared = self._manifest.types[name]
        try:
            shape = declared.sizes(step.dims)
        except KeyError as error:
            raise RunError(f"{name!r} needs the size of {error}") from None
        if name in given and declared.dtype == "int64" and len(shape) == 1:
            return np.array(given[name], np.int64)
        if declared.dtype in ("float16", "float32", "float64"):
            drawn = np.random.default_rng(0).standard_normal(shape) * 0.1
            return drawn.astype(DTYPES[declared.dtype])
        return np.zeros(shape, DTYPES[declared.dtype])

    def _touch(self, count: int) -> None:
        """Read `count` bytes of other memory, on as many cores as the engine may have used."""
        if self._other.nbytes != count // 4 * 4:
            self._other = np.ones(count // 4, np.float32)
        if count:
            list(self._threads.map(np.add.reduce, np.array_split(self._other, os.cpu_count() or 1)))


@dataclass(slots=True)
class _Join:
    """A ring that this device shall be part of."""

    manifest: Role
    addresses: Mapping[str, str]


class MeasureService:
    """One device that measures."""

    def __init__(self, settings: Settings) -> None:
        """Check the bundle; raises as `Runner`."""
        self._settings = settings
        self._manifest = load_role(settings.bundle)
        self._keys = None if settings.insecure else load_device_keys(settings.bundle)
        verify_files(settings.bundle, self._manifest.files)
        self._bench = Bench(self._manifest, settings.bundle)
        self._address = listen_address(self._manifest, settings)
        self._stopping = False
        self._told = False

    def serve(self) -> None:
        """Answer clients until asked to stop; raises as `Runner.serve`."""
        while not self._stopping:
            join = self._serve_client()
            if join is not None:
                self._serve_ring(join)

    def _serve_ring(self, join: _Join) -> None:
        settings = replace(self._settings, listen=self._address, stdio=False)
        try:
            runner = RingRunner(settings, join.manifest, join.addresses)
            runner.serve()
        except PartcError as error:
            print(f"{self._manifest.device}: {error}", file=sys.stderr, flush=True)
            return
        self._stopping = runner.interrupted

    def _serve_client(self) -> _Join | None:
        """The ring that a client asks this device to join; None: it shall stop."""
        transport = Transport(self._keys, frame_limit(self._manifest), self._settings.patience_s)
        try:
            self._address = transport.listen(self._address)
            links = Links(self._manifest, transport, machine_facts())
            with stop_signals() as signalled:
                transport.watch(signalled)
                self._begin(transport)
                while not self._stopping:
                    for event in transport.poll(links.tick(time.monotonic())):
                        for found in links.handle(event, time.monotonic()):
                            if (join := self._handle(found, links)) is not None:
                                return join
            return None
        finally:
            transport.close()

    def _begin(self, transport: Transport) -> None:
        if self._settings.stdio:
            transport.watch(sys.stdin)
        if not self._told:
            self._told = True
            line = json.dumps({"device": self._manifest.device, "listening": self._address})
            text = f"{self._manifest.device} listens on {self._address}, to be measured"
            print(line if self._settings.stdio else text, flush=True)

    def _handle(self, event: LinkEvent, links: Links) -> _Join | None:
        match event:
            case Input(file) if file is sys.stdin:
                self._stopping = not self._read_input()
            case Input():
                self._stopping = True
            case Failed(error):
                print(f"{self._manifest.device}: {error}", file=sys.stderr, flush=True)
            case Control(peer=peer) if peer == CLIENT:
                return self._from_client(event, links)
        return None

    def _from_client(self, event: Control, links: Links) -> _Join | None:
        fields = event.fields
        try:
            match fields["kind"]:
                case "measure":
                    links.control(
                        event.origin, "measured", request=fields["request"], **self._bench.measure(fields)
                    )
                case "join":
                    manifest = ring_role(self._manifest, fields["ring"])
                    peers = {name: fields["peers"].get(name, "") for name in manifest.send}
                    links.control(event.origin, "joined", request=fields["request"])
                    return _Join(manifest, peers)
                case "ping":
                    links.control(event.origin, "pong", token=fields["token"], doing="measures")
                case "shutdown":
                    self._stopping = True
                case _:
                    pass
        except (PartcError, MemoryError) as raised:
            error = raised if isinstance(raised, PartcError) else RunError("there is not enough memory")
            error.where = error.where or self._manifest.device
            links.control(event.origin, "error", (), request=fields["request"], **problem(error))
        return None

    def _read_input(self) -> bool:
        """Whether whoever started us is still there; its one line tells addresses that only rings need."""
        came = os.read(sys.stdin.fileno(), 65536)
        if came.endswith(b"\n"):
            print(json.dumps({"ready": True}), flush=True)
        return bool(came)


def waited_s() -> float:
    """For how long threads of this process were ready to run and had no core, since they began; 0 if not known."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
            waited += int(path.read_text().split()[1])
    return waited / 1e9


def cpu_pressure() -> float:
    """The part of the last ten seconds in which somebody here waited for a core, as Linux tells; 0 if it does not."""
    try:
        some = Path("/proc/pressure/cpu").read_text().split()
        return float(some[1].removeprefix("avg10=")) / 100
    except (OSError, ValueError, IndexError):
        return 0.0


def machine_facts() -> dict[str, Any]:
    """What a client is told of this machine; memory in bytes, 0 where it is not known."""
    return {
        "measures": True,
        "cpu": _of_proc("/proc/cpuinfo", "model name") or platform.processor() or "unknown CPU",
        "arch": architecture(),
        "cores": os.cpu_count() or 1,
        "pressure": cpu_pressure(),
        "memory_bytes": 1024 * int((_of_proc("/proc/meminfo", "MemAvailable") or "0").split()[0]),
    }


def _of_proc(file: str, key: str) -> str | None:
    """The first value of `key` in a file of lines `key : value`."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in found if name.strip() == key), None)
