"""Times of single sub-modules: loaded, cleared, and run as often as asked for.

Sub-modules are loaded one after the other: the last one is released before the next is read, so that a model may be
measured on a device that cannot hold it. Before every repeat other memory is read, as much as the rest of the model
has: in a ring the weights of a sub-module have left the caches until its next turn, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from partc.errors import RunError
from partc.format.dtypes import DTYPES, Array, as_float32
from partc.format.message_parts import Sampling
from partc.format.messages import Measure, Measured
from partc.format.role import Role
from partc.runtime.core.device.sampling import sample
from partc.runtime.core.step import Step, check_step
from partc.runtime.engines.contract import make_engine, settle
from partc.runtime.measure.machine import waited_s

MOST_REPEATS = 1000
MOST_TOUCHED = 1 << 30
"""The most memory that is read between repeats, bytes."""
_MOST_THREADS = 16


class Bench:
    """The sub-modules of a bundle, one of them loaded."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Nothing is loaded yet; raises BundleError where the engine is not installed."""
        self._role = role
        self._folder = folder
        self._name = ""
        self._engine = make_engine(role, folder)
        self._other = np.zeros(0, np.float32)
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))

    def measure(self, asked: Measure) -> Measured:
        """Answer a `measure` request: seconds of each repeat, of loading, and of clearing the states.

        Raises:
            RunError: a field is not what the bundle allows, or the engine failed.
            BundleError: the engine cannot read the sub-module.
        """
        name, logits = asked.submodule, asked.sample
        module = self._role.submodules.get(name)
        if module is None:
            raise RunError(f"{name!r:.60} is not a sub-module of this bundle")
        if logits and logits not in module.outputs:
            raise RunError(f"{logits!r:.60} is no output of {name}")
        if not 1 <= asked.repeats <= MOST_REPEATS or asked.touch_bytes > MOST_TOUCHED:
            raise RunError(f"at most {MOST_REPEATS} repeats and {MOST_TOUCHED} bytes between them")
        step = Step(0, 0, 1, "decode", asked.dims, asked.position, asked.length)
        check_step(step, self._role)
        inputs = [self._input(item, step) for item in module.inputs]
        load_s = self._load(name)
        began = time.perf_counter()
        self._engine.reset(0, step.dims)
        reset_s = time.perf_counter() - began
        place = module.outputs.index(logits) if logits else None
        repeats = [self._once(name, inputs, step, place, asked.touch_bytes) for _ in range(asked.repeats)]
        seconds, delays = zip(*repeats, strict=True)
        return Measured(ticket=asked.ticket, load_s=load_s, reset_s=reset_s, seconds=seconds, delays=delays)

    def _once(
        self, name: str, inputs: Sequence[Array], step: Step, logits: int | None, other: int
    ) -> tuple[float, float]:
        """Seconds of one repeat, and for how long of them threads of this process waited for a core."""
        self._touch(other)
        delay = waited_s()
        began = time.perf_counter()
        outputs = self._engine.run(name, 0, inputs, step.dims)
        if logits is not None:
            declared = self._role.types[self._role.submodules[name].outputs[logits]]
            values = as_float32(outputs[logits], declared.dtype)
            sample(values[:, 0, :], Sampling(), step.position)
        seconds = time.perf_counter() - began
        return seconds, max(0.0, waited_s() - delay)

    def _load(self, name: str) -> float:
        """Load a sub-module in the place of the one before; seconds."""
        if name == self._name:
            return 0.0
        if self._name:
            self._engine.release(self._name)
        self._name = ""
        began = time.perf_counter()
        self._engine.load(name)
        took = time.perf_counter() - began  # a ring does not wait for what follows either
        settle(self._engine)
        self._name = name
        return took

    def _input(self, name: str, step: Step) -> Array:
        """The step's own inputs as they would be; anything else as numbers of an ordinary size."""
        given = {
            "position": step.position,
            "length": step.length,
            "index": range(step.dims.get("sequence", 1)),
        }
        declared = self._role.types[name]
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
