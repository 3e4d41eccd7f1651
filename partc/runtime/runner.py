"""The event loop of a device: what arrives goes to the executor or the source, what they make goes out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.files import verify_files
from partc.format.role import Role, load_role
from partc.runtime.core.timings import Timing, timing_table
from partc.runtime.engines.contract import load_engine
from partc.runtime.executor import Executor, StepError
from partc.runtime.links import Arrived, Barred, Control, Failed, Linked, LinkEvent, Links, Lost
from partc.runtime.shell.keys import CLIENT, load_device_keys
from partc.runtime.shell.settings import Settings, listen_address, peer_addresses, stop_signals
from partc.runtime.shell.spin_wait import SpinWait
from partc.runtime.shell.transport import Event, Input, Origin, Transport
from partc.runtime.source import Source, problem
from partc.runtime.wire import Step, frame_limit, to_frames


class Runner:
    """One device of a ring."""

    def __init__(self, settings: Settings, manifest: Role | None = None) -> None:
        """Check the bundle, take the address, load the sub-modules; in this order, so that faults show early.

        Args:
            settings: how it is started.
            manifest: stands instead of the bundle's, whose files were checked already.

        Raises:
            BundleError: the bundle or its keys are not what they should be.
            RunError: the address cannot be had.
        """
        self._settings = settings
        self._checked = manifest is not None
        self._manifest = manifest = manifest or load_role(settings.bundle)
        keys = None if settings.insecure else load_device_keys(settings.bundle)
        self._transport = Transport(keys, frame_limit(manifest), settings.patience_s)
        try:
            self._prepare(manifest)
        except BaseException:
            self._transport.close()
            raise

    def _prepare(self, manifest: Role) -> None:
        settings = self._settings
        self.address = self._transport.listen(listen_address(manifest, settings))
        if not self._checked:
            verify_files(settings.bundle, manifest.files)
        self._links = Links(manifest, self._transport, {"patience_s": settings.patience_s})
        self._executor = Executor(manifest, load_engine(manifest, settings.bundle), self, time.monotonic)
        self._source: Source | None = None
        if manifest.is_source:
            self._source = Source(manifest, settings.bundle, self, time.monotonic, settings.patience_s)
        self._spin_wait = SpinWait(self._transport.poll)
        self._stopping = False
        self._was_complete = False
        self._due: tuple[float | None, float | None] = 0.0, None
        """When the links and the source are to be called again."""
        self._input = b""

    def serve(self) -> None:
        """Work until asked to stop: by `stop`, by the client, by SIGTERM or SIGINT, or by the end of the input.

        Raises:
            RunError: this device cannot be part of the ring.
        """
        try:
            with stop_signals() as signalled:
                self._transport.watch(signalled)
                self._begin()
                while not self._stopping:
                    self._turn()
        finally:
            self._transport.close()

    def stop(self) -> None:
        """End `serve` after what it is doing now."""
        self._stopping = True

    # -- what the executor needs (Outlet) and what the source needs (Office)

    def send(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> int:
        """Queue values for a device."""
        return self._links.send_data(peer, step, names, arrays)

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        """Hand values to the client's request."""
        assert self._source is not None
        self._source.emitted(step, values)

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        """Return received tensors to the client, in frames that everybody takes."""
        types = self._manifest.types
        fields = {
            "request": step.request,
            "device": self._manifest.device,
            "peer": peer,
            "step": step.step,
            "values": [(name, types[name].dtype, array.shape) for name, array in values.items()],
        }
        frames = [part for array in values.values() for part in to_frames(array)]
        if self._source is not None:
            self._source.traced(Control(self._manifest.device, "", {"kind": "trace", **fields}, frames))
        else:
            self._links.control(self._manifest.source, "trace", frames, **fields)

    def begin(self, step: Step, inputs: Mapping[str, Array]) -> None:
        """Start a step, once the request's last one is done here."""
        self._executor.begin(step, inputs)

    def close(self, number: int) -> None:
        """End a request on this device."""
        self._executor.close(number)

    def control(self, origin: Origin, kind: str, frames: Sequence[memoryview] = (), **fields: Any) -> bool:
        """Send a control message."""
        return self._links.control(origin, kind, frames, **fields)

    def timings_of(self, number: int) -> list[Timing]:
        """The steps of a request on this device."""
        return self._executor.timings_of(number)

    def missing(self) -> list[str]:
        """Devices to which there is no link."""
        return self._links.missing

    # -- the loop

    def _begin(self) -> None:
        if self._settings.stdio:
            self._transport.watch(sys.stdin)
            self._tell({"device": self._manifest.device, "listening": self.address}, "")
        else:
            self._tell({}, f"{self._manifest.device} listens on {self.address}")
            self._links.connect(peer_addresses(self._manifest, self._settings.peers))
            self._check_complete()

    def _turn(self) -> None:
        waits = not self._executor.ready
        for event in self._events():
            for found in self._links.handle(event, time.monotonic()):
                self._handle(found)
        if self._executor.ready:
            if waits:
                self._spin_wait.end()
            self._advance()
            # On the source a step ends with next to no work, and the next one begins.
            if self._source is not None and self._executor.ready:
                self._advance()
            self._spin_wait.begin()
        # All that can wait comes after that.
        if self._source is not None:
            self._source.tell()
        self._due = self._links.tick(time.monotonic()), self._source.tick() if self._source else None
        if not self._executor.ready:
            self._executor.look_ahead()
            self._links.look_ahead()

    def _events(self) -> Sequence[Event]:
        if self._executor.ready:
            return self._transport.poll(0.0)
        if self._settings.frugal or not self._executor.has_requests:
            return self._transport.poll(self._timeout())
        return self._spin_wait.wait(self._timeout())

    def _timeout(self) -> float | None:
        due = [moment for moment in self._due if moment is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _advance(self) -> None:
        try:
            number = self._executor.advance()
        except StepError as failure:
            self._report_failure(failure.request, failure.error)
            return
        if self._source is not None:
            self._source.moved(number)

    def _report_failure(self, number: int | None, error: PartcError) -> None:
        """A request, or all of them (None), cannot go on because of what happened here."""
        error.where = error.where or self._manifest.device
        if self._source is not None:
            if number is None:
                self._source.fail_all(error)
            else:
                self._source.fail(number, error)
            return
        if number is None:
            self._executor.close_all()
        else:
            self._executor.close(number)
        self._links.control(self._manifest.source, "fail", (), request=number, **problem(error))

    def _handle(self, event: LinkEvent) -> None:
        match event:
            case Arrived():
                self._arrived(event)
            case Control():
                self._control(event)
            case Linked():
                self._check_complete()
            case Lost():
                self._lost(event)
            case Failed(error):
                self._report_failure(None, error)
            case Barred(error):
                self._barred(error)
            case Input(file) if file is sys.stdin:
                self._read_input()
            case Input():
                self.stop()

    def _arrived(self, event: Arrived) -> None:
        try:
            self._executor.deliver(event.peer, event.step, event.values)
        except RunError as error:
            error.where = error.where or f"{event.peer} -> {self._manifest.device}"
            self._report_failure(event.step.request, error)
            return
        if self._source is not None:
            self._source.moved(event.step.request)

    def _control(self, event: Control) -> None:
        if self._source is None and event.peer == self._manifest.source:
            self._from_source(event)
        elif self._source is not None and event.peer == CLIENT:
            self._from_client(event, self._source)
        elif self._source is not None:
            self._from_device(event, self._source)

    def _from_source(self, event: Control) -> None:
        match event.fields["kind"]:
            case "close":
                self._executor.close(event.fields["request"])
                if event.fields["report"]:
                    self._report(event.fields["request"])
            case "ping":
                doing = self._executor.doing()
                self._links.control(self._manifest.source, "pong", token=event.fields["token"], doing=doing)
            case "shutdown":
                self.stop()
            case _:
                pass

    def _from_device(self, event: Control, source: Source) -> None:
        fields = event.fields
        match fields["kind"]:
            case "ready":
                source.joined(event.peer, event.origin, fields["next_request"])
                self._check_complete()
            case "fail":
                error = RunError(fields["message"], where=fields["where"], hint=fields["hint"])
                if fields["request"] is None:
                    source.fail_all(error)
                else:
                    source.fail(fields["request"], error)
            case "unready":
                source.lost(event.peer, fields["lost"])
            case "stats":
                source.stats(event)
            case "trace":
                source.traced(event)
            case "pong":
                source.pong(event.peer, fields["doing"])
            case _:
                pass

    def _from_client(self, event: Control, source: Source) -> None:
        match event.fields["kind"]:
            case "submit":
                source.submit(event)
            case "cancel":
                source.cancel(event.origin, event.fields["request"])
            case "ping":
                doing = self._executor.doing()
                self._links.control(event.origin, "pong", token=event.fields["token"], doing=doing)
            case "shutdown":
                source.broadcast("shutdown")
                self.stop()
            case _:
                pass

    def _report(self, number: int) -> None:
        columns, table = timing_table(self._executor.timings_of(number))
        self._links.control(
            self._manifest.source,
            "stats",
            to_frames(table),
            request=number,
            device=self._manifest.device,
            columns=columns,
            values=[("timing", "float64", table.shape)],
        )

    def _check_complete(self) -> None:
        """Tell once all links stand: the source by a message, whoever started us by a line."""
        if self._links.missing:
            return
        if self._source is None:
            self._links.control(self._manifest.source, "ready", next_request=self._executor.next_request)
        else:
            self._source.pump()
            if self._source.absent:
                return
        if not self._was_complete:
            self._was_complete = True
            what = "the ring is complete" if self._source else "linked"
            self._tell({"ready": True}, f"{self._manifest.device}: {what}")

    def _lost(self, event: Lost) -> None:
        if self._source is not None and event.peer == CLIENT:
            self._source.cancel(event.origin, None)
        elif self._source is not None:
            self._source.lost(event.peer, event.peer)
        elif event.peer == self._manifest.source:
            self._executor.close_all()
        elif isinstance(event.origin, str):
            self._executor.close_all()
            self._links.control(self._manifest.source, "unready", lost=event.peer)

    def _barred(self, error: PartcError) -> None:
        """Before the ring ever stood this device is the wrong one; after that, rather the other."""
        if not self._was_complete:
            raise error
        self._report_failure(None, error)

    # -- the one who started us

    def _read_input(self) -> None:
        came = os.read(sys.stdin.fileno(), 65536)
        self._input += came
        if not came:
            self._transport.unwatch(sys.stdin)
            self.stop()
        while b"\n" in self._input:
            line, _, self._input = self._input.partition(b"\n")
            self._links.connect(peer_addresses(self._manifest, json.loads(line)["peers"]))
            self._check_complete()

    def _tell(self, fields: Mapping[str, Any], text: str) -> None:
        line = json.dumps(fields) if self._settings.stdio else text
        if line:
            print(line, flush=True)
