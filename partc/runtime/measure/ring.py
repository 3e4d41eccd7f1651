"""Rings of one or two devices that compute next to nothing: what a hop costs by the way that real steps take.

A device that measures (`service.py`) becomes an ordinary runner for a while, with a program made here:

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

import msgspec

from partc.errors import PartcError, RunError
from partc.format.digests import data_digest
from partc.format.placement import Placement, Stage, seal_placement
from partc.format.program import Emit, Program, Recv, Run, Sample, Send, print_program
from partc.format.role import Role
from partc.runtime.shell.runner import Runner
from partc.runtime.shell.settings import Settings

TOUCH, PAYLOAD, HEAD = "probe_touch", "probe_payload", "probe_head"
"""The sub-modules of the rings."""
TOUCHED, SENT, LOGITS, TOKEN = "probe.touched", "probe.sent", "probe.logits", "probe.token"
"""The values that they make, and the token."""
PROMPT = "input_ids"
MOST_S = 120.0
"""Seconds that a device stays in a ring at most; then it serves its client again."""


def ring_role(own: Role, ring: Sequence[str]) -> Role:
    """The role of `own.device` in a ring of one or two devices of the same profile.

    Raises:
        RunError: the ring is none of these devices.
    """
    known = own.addresses
    if not 1 <= len(set(ring)) == len(ring) <= 2 or own.device not in ring or not set(ring) <= set(known):
        raise RunError(f"{', '.join(ring)} is no ring of one or two", hint=f"devices: {', '.join(known)}")
    plan_id = data_digest([own.plan_id, *ring])
    modules = tuple(own.submodules[name] for name in (TOUCH, PAYLOAD, HEAD))
    placement = ring_placement(plan_id, ring, known)
    return Role(msgspec.structs.replace(own.build, plan_id=plan_id, submodules=modules), placement)


def ring_placement(plan_id: str, ring: Sequence[str], addresses: Mapping[str, str | None]) -> Placement:
    """The placement of a ring of one or two devices."""
    texts = {device: print_program(program) for device, program in ring_programs(ring).items()}
    stages = tuple(Stage((place, place), (device,)) for place, device in enumerate(ring))
    return seal_placement(
        Placement(
            placement_id="",
            plan_id=plan_id,
            source=ring[0],
            ring=tuple(ring),
            stages={"prefill": stages, "decode": stages},
            programs={"prefill": texts, "decode": texts},
            addresses=addresses,
            predicted={},
        )
    )


def ring_programs(ring: Sequence[str]) -> dict[str, Program]:
    """The program of each device in a step of the ring; see the table at the top."""
    touch, payload, head = (
        Run(TOUCH, ("length",), (TOUCHED,)),
        Run(PAYLOAD, (PROMPT,), (SENT,)),
        Run(HEAD, (SENT,), (LOGITS,)),
    )
    if len(ring) == 1:
        return {ring[0]: (touch, payload, head, Sample(LOGITS, TOKEN), Emit((TOKEN,)))}
    first, last = ring
    return {
        first: (touch, payload, Send((SENT,), last), Recv((TOKEN,), last), Emit((TOKEN,))),
        last: (Recv((SENT,), first), touch, head, Sample(LOGITS, TOKEN), Send((TOKEN,), first)),
    }


class RingRunner(Runner):
    """A runner of such a ring, which ends by itself when nobody ends it."""

    def __init__(self, settings: Settings, role: Role, addresses: Mapping[str, str]) -> None:
        """The same as `Runner`, for a role that is in memory; `addresses` are the peers'."""
        super().__init__(settings, role)
        self._addresses = dict(addresses)
        self._end = time.monotonic() + MOST_S
        self.interrupted = False
        """Whether a signal, or the end of the input, ended it."""
        self.refusal: PartcError | None = None
        """The reason why a peer did not take this device, if none did in the end."""

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
