"""Programs in execution: one per (request, step), none of which waits for another.

An execution advances until it has to wait for a message, or has finished; whichever can go on does, the
oldest first. So requests in flight fill each other's waiting times by themselves (EdgeShard's pipeline
without bubbles). No I/O happens here: what leaves goes through an `Outlet`, what arrives comes through
`deliver`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, assert_never

import numpy as np

from partc.errors import InternalError, RunError
from partc.format.dtypes import Array, as_float32
from partc.format.program import CHUNK, Emit, Program, Recv, Run, Sample, Send
from partc.format.role import Role
from partc.runtime.core.sampling import Sampling, sample
from partc.runtime.core.timings import Timing, whole_steps
from partc.runtime.engines.contract import Engine
from partc.runtime.execution import Execution, OpenRequest
from partc.runtime.wire import Step

_KEPT_TIMINGS = 8192
_KEPT_NUMBERS = 256


class Outlet(Protocol):
    """Where the instructions that leave the device go."""

    def send(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> int:
        """Queue a message; its bytes. Raises RunError where that is impossible."""

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        """Hand values to the client."""

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        """A traced request received these from `peer`; from this very device come the logits it samples."""


class Executor:
    """All executions of one device."""

    def __init__(self, manifest: Role, engine: Engine, outlet: Outlet, clock: Callable[[], float]) -> None:
        """No request is open."""
        self._manifest = manifest
        self._engine = engine
        self._outlet = outlet
        self._clock = clock
        self._requests: dict[int, OpenRequest] = {}
        self._slots: dict[int, int] = {}
        self._closed: deque[int] = deque(maxlen=_KEPT_NUMBERS)
        self._executions: dict[int, Execution] = {}
        self._prepared: dict[int, Execution] = {}
        self._latest: dict[int, Step] = {}
        """Request → its last step, of those that began since `look_ahead`."""
        self._ready: list[tuple[int, int]] = []
        self._started = 0
        self._most_steps = manifest.model.most_chunks
        self._most_early = self._most_steps * max(map(_messages, manifest.programs.values()))
        self._dead = {phase: _last_uses(program) for phase, program in manifest.programs.items()}
        self.timings: deque[Timing] = deque(maxlen=_KEPT_TIMINGS)
        """The latest steps of this device."""
        self.next_request = 0
        """Every request that was ever told of here has a lower number."""

    @property
    def ready(self) -> bool:
        """Whether an execution can go on."""
        return bool(self._ready)

    @property
    def has_requests(self) -> bool:
        """Whether a request is open."""
        return bool(self._requests)

    def begin(self, step: Step, inputs: Mapping[str, Array]) -> None:
        """Start a step whose inputs are here (on the source), once the request's last one is done here.

        Raises:
            RunError: it does not follow the request's last step.
        """
        if step.request in self._executions:
            self._requests[step.request].queued.append((step, inputs))
        else:
            self._start(step, inputs)

    def look_ahead(self) -> None:
        """Prepare the steps that follow on those that began since the last time, while there is time."""
        for number, step in self._latest.items():
            if step.phase != CHUNK and "decode" in self._manifest.programs:
                self._prepared[number] = self._prepare(step.next_token(), self._requests[number])
        self._latest.clear()

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        """Take a message; what belongs to a request that is closed is dropped.

        Raises:
            RunError: the step does not fit the request, or the message came already.
        """
        execution = self._executions.get(step.request) or self._joined(step)
        if execution is None:
            return
        ahead, early = step.step - execution.step.step, execution.request.early
        if 0 < ahead <= self._most_steps and len(early) < self._most_early:
            early.append((peer, step, values))
            return
        if not _same_step(execution.step, step):
            raise RunError(
                f"{peer} is at step {step.step} of request {step.request} with other sizes than here"
            )
        key = (peer, tuple(values))
        if key in execution.came:
            raise RunError(f"{peer} sent {', '.join(values)} twice in step {step.step}")
        execution.came.add(key)
        awaited = execution.awaits()
        execution.inbox[key] = (values, self._clock())
        execution.timing.received_bytes += sum(array.nbytes for array in values.values())
        if execution.request.trace:
            self._outlet.traced(peer, step, values)
        if awaited is not None and key == (awaited.device, awaited.values):
            self._wake(execution)

    def close(self, number: int) -> None:
        """End a request, wherever it is; an unknown one is none of our business."""
        self.next_request = max(self.next_request, number + 1)
        self._requests.pop(number, None)
        self._prepared.pop(number, None)
        self._latest.pop(number, None)
        execution = self._executions.pop(number, None)
        if execution is not None:
            self._ready = [entry for entry in self._ready if entry[1] != number]
            heapq.heapify(self._ready)
        self._closed.append(number)

    def close_all(self) -> None:
        """End every request."""
        for number in list(self._requests):
            self.close(number)

    def advance(self) -> int:
        """Let the oldest execution that can go on do so, until it waits or ends; its request.

        Raises:
            StepError: it failed; the request is to be closed.
        """
        _, number = heapq.heappop(self._ready)
        execution = self._executions[number]
        execution.timing.queue_s += self._clock() - execution.ready_since
        try:
            self._advance(execution)
        except RunError as error:
            raise StepError(number, error) from error
        return number

    def timings_of(self, number: int) -> list[Timing]:
        """The steps of one request that are still remembered."""
        return whole_steps(timing for timing in self.timings if timing.request == number)

    def doing(self) -> str:
        """What the executions wait for, in words."""
        waits = []
        for _, execution in sorted(self._executions.items()):
            awaited = execution.awaits()
            if awaited:
                what = f"{', '.join(awaited.values)} from {awaited.device}"
                waits.append(f"waits for {what} (step {execution.step.step})")
        return "; ".join(waits) or "idle"

    def _joined(self, step: Step) -> Execution | None:
        """The execution of a step that a message is the first to tell of; none once a request is closed.

        At the source no message is the first: one that tells of an unknown request was for its former life.
        """
        known, is_source = self._requests.get(step.request), self._manifest.is_source
        if known is None and (is_source or step.opening is None or self._is_over(step)):
            return None
        if known is not None and step.step < known.next_step:
            raise RunError(f"step {step.step} of request {step.request} is over")
        if is_source:
            raise RunError(f"step {step.step} of request {step.request} has not begun")
        return self._start(step, {})

    def _is_over(self, step: Step) -> bool:
        """Whether a message is late: on another link, the end of its request may have overtaken it."""
        return step.request in self._closed or step.request < self._slots.get(step.slot, 0)

    def _start(self, step: Step, inputs: Mapping[str, Array]) -> Execution:
        execution = self._prepared.pop(step.request, None)
        if execution is None or execution.step != step:
            execution = self._admit(step)
        request = execution.request
        request.phase = step.phase
        now = execution.timing.started_s = self._clock()
        execution.order = self._started = self._started + 1
        execution.values.update(inputs)
        self._latest[step.request] = step
        self._executions[step.request] = execution
        if execution.awaits():
            # What came before the first message of a step was waiting for it, but for a request's very first.
            execution.waiting_since = request.idle_since if step.step else now
        else:
            self._wake(execution)
        return execution

    def _admit(self, step: Step) -> Execution:
        """The execution of a step that nobody has prepared."""
        request = self._requests.get(step.request) or self._open(step)
        if not request.is_next(step):
            last = request.next_step - 1
            raise RunError(f"step {step.step} of request {step.request} does not follow its step {last}")
        if step.phase == "prefill":
            request.parts = step.step
        return self._prepare(step, request)

    def _prepare(self, step: Step, request: OpenRequest) -> Execution:
        number = 0 if step.phase == CHUNK else step.step - request.parts
        program, values = self._manifest.programs[step.phase], self._step_inputs(step)
        return Execution(step, request, program, Timing(step.request, number), values)

    def _open(self, step: Step) -> OpenRequest:
        assert step.opening is not None
        if step.slot in self._slots:
            self.close(self._slots[step.slot])
        sampling = _sampling(step.opening.sampling)
        request = OpenRequest(step.request, step.slot, sampling, step.opening.trace, self._clock())
        self._engine.reset(step.slot, step.dims)
        self._requests[step.request] = request
        self._slots[step.slot] = step.request
        self.next_request = max(self.next_request, step.request + 1)
        return request

    def _step_inputs(self, step: Step) -> dict[str, Array]:
        if not self._manifest.has_step_inputs:
            return {}
        return {
            "position": np.array(step.position, np.int64),
            "length": np.array(step.length, np.int64),
            "index": np.arange(step.dims.get("sequence", 1), dtype=np.int64),
        }

    def _wake(self, execution: Execution) -> None:
        execution.ready_since = self._clock()
        heapq.heappush(self._ready, (execution.order, execution.step.request))

    def _advance(self, execution: Execution) -> None:
        dead = self._dead[execution.step.phase]
        while execution.at < len(execution.program):
            instruction = execution.program[execution.at]
            if isinstance(instruction, Recv):
                if execution.awaits():
                    execution.waiting_since = self._clock()
                    return
                self._receive(execution, instruction)
            else:
                self._instruct(execution, instruction)
            for name in dead[execution.at]:
                execution.values.pop(name, None)
            execution.at += 1
            if self._executions.get(execution.step.request) is not execution:
                return
        self._finish(execution)

    def _instruct(self, execution: Execution, instruction: Run | Send | Sample | Emit) -> None:
        values = execution.values
        match instruction:
            case Run(submodule=name, inputs=inputs, outputs=outputs):
                began = self._clock()
                step = execution.step
                made = self._engine.run(name, step.slot, [values[item] for item in inputs], step.dims)
                values.update(zip(outputs, made, strict=True))
                execution.timing.compute_s += self._clock() - began
            case Send(values=names, device=peer):
                sent = self._outlet.send(peer, execution.step, names, [values[name] for name in names])
                execution.timing.sent_bytes += sent
            case Sample(logits=logits, token=token):
                values[token] = self._sample(execution, logits)
            case Emit(values=names):
                execution.emitted = {name: values[name] for name in names}
            case _:
                assert_never(instruction)

    def _receive(self, execution: Execution, instruction: Recv) -> None:
        peer = instruction.device
        came, at = execution.inbox.pop((peer, instruction.values))
        execution.values.update(came)
        if execution.waiting_since is not None:
            waited = max(0.0, at - execution.waiting_since)
            execution.timing.wait_s[peer] = execution.timing.wait_s.get(peer, 0.0) + waited
            execution.waiting_since = None

    def _sample(self, execution: Execution, name: str) -> Array:
        logits = as_float32(execution.values[name], self._manifest.types[name].dtype)
        if logits.ndim != 3 or logits.shape[1] != 1:
            raise InternalError(f"logits have the shape {logits.shape}, not (batch, 1, vocabulary)")
        step = execution.step
        if execution.request.trace:
            self._outlet.traced(self._manifest.device, step, {name: execution.values[name]})
        began = self._clock()
        places = [position + length for position, length in zip(step.position, step.length, strict=True)]
        tokens = sample(logits[:, 0, :], execution.request.sampling, places)
        execution.timing.compute_s += self._clock() - began
        return tokens

    def _finish(self, execution: Execution) -> None:
        """The step is over; what it emits goes out last, since the request's next step begins with it."""
        number, step, request = execution.step.request, execution.step, execution.request
        del self._executions[number]
        self.timings.append(execution.timing)
        request.idle_since = self._clock()
        request.next_step = step.step + 1
        request.next_position = tuple(map(sum, zip(step.position, step.length, strict=True)))
        if request.queued:
            self._start(*request.queued.popleft())
        early, request.early = request.early, []
        for peer, following, values in early:
            self.deliver(peer, following, values)
        if execution.emitted:
            self._outlet.emit(step, execution.emitted)


class StepError(Exception):
    """A step failed on this device."""

    def __init__(self, request: int, error: RunError) -> None:
        super().__init__(str(error))
        self.request = request
        self.error = error


def _same_step(a: Step, b: Step) -> bool:
    return (a.step, a.slot, a.dims, a.position, a.length) == (b.step, b.slot, b.dims, b.position, b.length)


def _sampling(fields: Mapping[str, float | int]) -> Sampling:
    try:
        return Sampling(**fields)  # type: ignore[arg-type]
    except TypeError:
        raise RunError("sampling: temperature, top_k, top_p and seed are expected") from None


def _messages(program: Program) -> int:
    """How many messages a step waits for."""
    return sum(isinstance(instruction, Recv) for instruction in program)


def _last_uses(program: Program) -> list[frozenset[str]]:
    """Per instruction, the values that nothing after it uses, so that their memory can go."""
    last: dict[str, int] = {name: index for index, item in enumerate(program) for name in item.reads}
    return [frozenset(name for name, at in last.items() if at == index) for index in range(len(program))]
