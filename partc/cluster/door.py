"""The door of a fleet: the endpoint of `partc serve` in a thread, whose rings change while it answers.

It keeps what it is told in a file, so that a door that is started anew has the rings of the one that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from partc.atomic import write_file
from partc.balance.balancing import note_refusal, read_balancing
from partc.cluster.posts import DoorRing
from partc.config.fleet import DoorPlace
from partc.errors import PartcError, RunError
from partc.format.role import source_role
from partc.planner.model.device_times import PlannedTimes
from partc.runtime.client.client import Client
from partc.serve.access import Limits, read_keys
from partc.serve.browsers import read_origins
from partc.serve.ring import Opened
from partc.serve.server import RingSettings, Server, ServerSettings

_LINGER_S = 1.0
"""Time that a request waits for a source that is out of reach: then another ring has it."""
_LOOK_S = 2.5
_BODY_BYTES = 1 << 20
STATE = "door.json"


class Door:
    """An endpoint in front of rings that run; every method may be called by another thread than its own."""

    def __init__(self, place: DoorPlace, rings: Sequence[DoorRing], state: str) -> None:
        """Begin to listen.

        Args:
            place: where, and with which limits.
            rings: those that a first door has; one that is started anew has those of the last one.
            state: folder for the file that says which.

        Raises:
            PartcError: it cannot; as `partc serve`.
        """
        self._place, self._file = place, Path(state, STATE)
        self._rings = {ring.name: ring for ring in self._kept() or rings}
        first, *others = (self._settings(ring) for ring in self._rings.values())
        self._url, self._error = "", ""
        self._server = Server(first, settings_of(place), self._tell)
        self._loop = asyncio.new_event_loop()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._answer, args=(others,), name="door", daemon=True)
        self._keep()
        self._thread.start()
        self._begun.wait()
        if self._error:
            raise RunError(self._error)

    def place(self) -> DoorPlace:
        """Where it listens, as it was told."""
        return self._place

    def rings(self) -> dict[str, DoorRing]:
        """Name → ring."""
        return dict(self._rings)

    def state(self) -> dict[str, Any]:
        """`{url, error, in_flight, rings: [{name, state, ring}]}`; `error` is what ended it."""
        told = {"in_flight": 0, "rings": []} if self._error else self._call(self._server.look(_LOOK_S))
        return {"url": self._url, "error": self._error, **told}

    def open(self, ring: DoorRing) -> None:
        """Put another ring behind the door; raises what a server does."""

        async def open_it() -> None:
            self._server.open(self._settings(ring))

        self._call(open_it())
        self._rings[ring.name] = ring
        self._keep()

    def remove(self, name: str, grace_s: float) -> None:
        """Take a ring away when its requests have ended; those that have not by then begin again at another."""
        self._call(self._server.remove(name, grace_s))
        self._rings.pop(name, None)
        self._keep()

    def end(self) -> None:
        """End the endpoint for good."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._server.end)
        self._thread.join()
        self._file.unlink(missing_ok=True)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _answer(self, others: Sequence[RingSettings]) -> None:
        try:
            self._loop.run_until_complete(self._server.run(others))
        except PartcError as error:
            self._error = error.message
        except BaseException as error:
            self._error = f"{type(error).__name__}: {error}"
            raise
        else:
            self._error = "it was ended"
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._begun.set()

    def _tell(self, what: str, detail: str, ring: str) -> None:
        if what == "listening":
            self._url = detail
            self._begun.set()
        print(f"{ring or 'door'}: {what} {detail}".rstrip(), flush=True)

    def _settings(self, ring: DoorRing) -> RingSettings:
        return ring_settings(ring, has_balancer=self._place.balance)

    def _keep(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._file, msgspec.json.encode(list(self._rings.values())))

    def _kept(self) -> list[DoorRing]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[DoorRing])
        except (OSError, msgspec.DecodeError):
            return []


def settings_of(place: DoorPlace) -> ServerSettings:
    """The settings of the endpoint that a fleet.yaml asks for; raises ConfigError where an origin is none."""
    return ServerSettings(
        host=place.host,
        port=place.port,
        name=place.name,
        keys=frozenset() if place.api_key_file is None else read_keys(place.api_key_file),
        certificate=place.tls_cert,
        private_key=place.tls_key,
        template=place.chat_template,
        temperature=place.temperature,
        limits=Limits(_BODY_BYTES, place.queue, place.timeout_s),
        origins=read_origins(place.cors_origins),
        ignores_unknown=place.ignore_unknown_fields,
        drafts=place.drafts,
    )


def ring_settings(ring: DoorRing, *, has_balancer: bool) -> RingSettings:
    """The settings of a ring behind the endpoint; raises RunError where this node has another build."""
    build = Path(ring.build)
    role = source_role(build)
    plan = PlannedTimes.of_build(build)
    if role.plan_id != ring.plan_id:
        hint = "copy the build of fleet.yaml to the door's node as well"
        raise RunError("this node has another build", where=ring.build, hint=hint)
    balancing = read_balancing(build, note_refusal, goes_on=True) if has_balancer else None
    return RingSettings(
        ring.name,
        build,
        role,
        partial(_reached, ring),
        plan.in_ring if plan else lambda found: {},
        balancing.beside if balancing else None,
    )


@contextlib.contextmanager
def _reached(ring: DoorRing) -> Iterator[Opened]:
    """A ring that runs, or will."""
    build = Path(ring.build)
    yield Opened(lambda: Client.connect(build, ring.source, insecure=ring.insecure, linger_s=_LINGER_S))
