"""Rings of one or two devices that compute next to nothing: what a hop costs by the way that real steps take.

A device that measures (`measure.py`) becomes an ordinary runner for a while, with a program made here:

```
one device    run touch · run payload · run head · sample · emit
first of two  run touch · run payload · send payload · recv token · emit
last of two   recv payload · run touch · run head · sample · send token
```

Everything else is what `partc run` uses: the same loop, links, keys and client, and its timings tell how much
of a step was computing. The rest of the step is what the hops cost, with all that Python, ZeroMQ and the
encryption take. `touch` reads as many weights as a device of the real ring would, so that the runner is no
warmer in the caches than it will be.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from partc.errors import PartcError, RunError
from partc.format.digests import data_digest
from partc.format.program import Emit, Program, Recv, Run, Sample, Send
from partc.runtime.manifest import Manifest
from partc.runtime.shell.runner import Runner
from partc.runtime.shell.settings import Settings

TOUCH, PAYLOAD, HEAD = "probe_touch", "probe_payload", "probe_head"
"""The sub-modules of the rings."""
TOUCHED, SENT, LOGITS, TOKEN = "probe.touched", "probe.sent", "probe.logits", "probe.token"
"""What they make, and the token."""
PROMPT = "input_ids"
MOST_S = 120.0
"""How long a device stays in a ring at most, seconds; then it serves its client again."""


def ring_manifest(own: Manifest, ring: Sequence[str]) -> Manifest:
    """The manifest of `own.device` in a ring of one or two devices of the same bundle.

    Raises:
        RunError: the ring is none of these devices.
    """
    if not 1 <= len(set(ring)) == len(ring) <= 2 or own.device not in ring or not set(ring) <= set(own.ring):
        raise RunError(f"{', '.join(ring)} is no ring of one or two", hint=f"devices: {', '.join(own.ring)}")
    program = ring_program(own, ring)
    peers = tuple(name for name in ring if name != own.device)
    return replace(
        own,
        plan_id=data_digest([own.plan_id, *ring]),
        source=ring[0],
        ring=tuple(ring),
        submodules={name: own.submodules[name] for name in (TOUCH, PAYLOAD, HEAD)},
        programs={"prefill": program, "decode": program},
        receive=peers,
        send=peers,
    )


def ring_program(own: Manifest, ring: Sequence[str]) -> Program:
    """What `own.device` does in a step of the ring; see the table at the top."""
    runs = {
        name: Run(name, own.submodules[name].inputs, own.submodules[name].outputs)
        for name in (TOUCH, PAYLOAD, HEAD)
    }
    if len(ring) == 1:
        return (runs[TOUCH], runs[PAYLOAD], runs[HEAD], Sample(LOGITS, TOKEN), Emit((TOKEN,)))
    first, last = ring
    if own.device == first:
        return (runs[TOUCH], runs[PAYLOAD], Send((SENT,), last), Recv((TOKEN,), last), Emit((TOKEN,)))
    return (Recv((SENT,), first), runs[TOUCH], runs[HEAD], Sample(LOGITS, TOKEN), Send((TOKEN,), first))


class RingRunner(Runner):
    """A runner of such a ring, which ends by itself when nobody ends it."""

    def __init__(self, settings: Settings, manifest: Manifest, addresses: Mapping[str, str]) -> None:
        """As `Runner`, for a manifest that is in memory; `addresses` are the peers'."""
        super().__init__(settings, manifest)
        self._addresses = dict(addresses)
        self._end = time.monotonic() + MOST_S
        self.interrupted = False
        """Whether a signal, or the end of the input, ended it."""
        self.refusal: PartcError | None = None
        """Why a peer did not take this device, if none did in the end."""

    def _begin(self) -> None:
        for name, address in self._addresses.items():
            self._transport.connect(name, address)

    def _turn(self) -> None:
        super()._turn()
        if time.monotonic() >= self._end:
            self.stop()

    def _timeout(self) -> float | None:
        left = max(0.0, self._end - time.monotonic())
        soonest = super()._timeout()
        return left if soonest is None else min(left, soonest)

    def _read_input(self, file: object) -> None:
        self.interrupted = True
        self.stop()

    def _leave(self, error: PartcError | None) -> None:
        """A peer that still serves its client refuses the ring; it hangs up when it joins, and we try again."""
        if error is None:
            self.stop()
        self.refusal = error or self.refusal

    def _tell(self, fields: Mapping[str, object], text: str) -> None:
        """Nobody waits for words of this ring."""
