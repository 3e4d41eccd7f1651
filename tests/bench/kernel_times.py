"""The time of each kernel of a step: where a prompt or a token of a compiled bundle spends its time, on one thread.

    python -m tests.bench.kernel_times BUNDLE [--device a] [--rows 512] [--position 0] [--rounds 10]

Prints a line for each kernel with the shapes of its tensors: the number of its calls in a step, the least and the
median processor time of all of them together, and their share of the step by the medians. Calls run one by one, in the
order of the plan, so that each finds the caches as it would in a step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from partc.format.kernel_plan import Kernel
from partc.runtime.engines.plan import PlanEngine
from partc.runtime.engines.plan_frame import Frame
from tests.bench.speed.machine import Watch
from tests.bench.uncut import Uncut

CALL_BYTES = 24
"""One call in the table of a frame (`plan_frame.py`)."""


@dataclass(frozen=True)
class Line:
    """The calls of one kernel in a step."""

    kernel: str
    shapes: str
    calls: int
    seconds: Sequence[float]
    """Of all its calls together, one number a round."""

    def text(self, step_s: float) -> str:
        """The line, given the median time of a step."""
        median = statistics.median(self.seconds)
        return (
            f"{median / step_s:6.1%} {self.calls:4} × {1e6 * median / self.calls:9.1f} µs"
            f" (least {1e6 * min(self.seconds) / self.calls:9.1f})  {self.kernel}  {self.shapes}"
        )


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description="The time of each kernel of a step.")
    parser.add_argument("bundle", type=Path, help="a bundle in one piece")
    parser.add_argument("--device", default="a")
    parser.add_argument("--rows", type=int, default=512, help="tokens of the step")
    parser.add_argument("--position", type=int, default=0, help="tokens before it")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    frame = frame_of(options.bundle, options.device, options.rows, options.position)
    watch = Watch()
    rounds = [time_calls(frame) for _ in range(options.rounds)]
    lines = lines_of(frame, rounds)
    step_s = sum(statistics.median(line.seconds) for line in lines)
    for line in sorted(lines, key=lambda line: -statistics.median(line.seconds)):
        print(line.text(step_s))
    least_s = sum(min(line.seconds) for line in lines)
    print(f"all: {1e3 * step_s:.2f} ms (least {1e3 * least_s:.2f}). {watch.machine().sentence}")


def frame_of(bundle: Path, device: str, rows: int, position: int) -> Frame:
    """The frame of a step of so many rows, which has run once."""
    model = Uncut(bundle, device)
    model.step(rows, position)
    engine = model._engine
    assert isinstance(engine, PlanEngine)
    (call,) = engine._calls.values()
    return call.frame


def time_calls(frame: Frame) -> list[float]:
    """Processor time of each call, seconds; a call of nothing is taken off."""
    run, first = frame._library.run, frame._calls
    times = []
    for number in range(-1, len(frame._kernels)):
        began = time.thread_time()
        assert not run(first + CALL_BYTES * max(0, number), 1 if number >= 0 else 0)
        times.append(time.thread_time() - began)
    return [max(0.0, spent - times[0]) for spent in times[1:]]


def lines_of(frame: Frame, rounds: Sequence[Sequence[float]]) -> list[Line]:
    """The calls of each kernel together, in the order of their first call."""
    plan = frame._library.plan.kernels
    return [
        Line(
            kernel,
            shapes_of(plan[kernel]),
            calls,
            [
                sum(t for name, t in zip(frame._kernels, times, strict=True) if name == kernel)
                for times in rounds
            ],
        )
        for kernel, calls in Counter(frame._kernels).items()
    ]


def shapes_of(kernel: Kernel) -> str:
    """The types of its tensors."""
    return ", ".join(f"{one.dtype}{list(one.shape)}" for one in kernel.parameters)


if __name__ == "__main__":
    main()
