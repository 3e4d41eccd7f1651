"""Checks of lives: devices that are killed, and come back without their memory."""

from __future__ import annotations

import os
import signal

from partc.conformance.bench import PATIENCE_S, Bench
from partc.conformance.findings import Mismatch, same
from partc.conformance.rings import PROMPTS, generate, result_of
from partc.errors import RunError
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing
from partc.runtime.client.results import Result

COUNT = 18
_BEFORE_S = 0.15


def _killed(bench: Bench, device: str, victim: str) -> None:
    """Kill a device while a request is under way, which goes on to the same tokens."""
    right = bench.reference("chain").answer([PROMPTS[1]], COUNT, ignore_eos=True)
    with bench.own_ring("chain", device, restart=True, rejoin_s=PATIENCE_S) as ring, ring.client() as client:
        found = _across(client, ring, victim)
        same([list(row) for row in found.tokens], right.tokens, f"tokens across the death of {victim}")
        after = generate(client, [PROMPTS[1]], COUNT, ignore_eos=True)
        same([list(row) for row in after.tokens], right.tokens, "tokens of the next request")


def _across(client: Client, ring: LocalRing, victim: str) -> Result:
    told: list[int] = []

    def kill(_: object) -> None:
        told.append(1)
        if len(told) == 3:
            os.kill(ring.pids[victim], signal.SIGKILL)

    request = client.submit([PROMPTS[1]], max_new_tokens=COUNT, ignore_eos=True, on_token=kill)
    found = result_of(client, request)
    if len(told) != COUNT:
        raise Mismatch(f"{len(told)} steps were told of, {COUNT} were due: each is told once")
    return found


def check_own_death(bench: Bench, device: str) -> None:
    """The runner under test is killed and started again."""
    _killed(bench, device, device)


def check_other_death(bench: Bench, device: str) -> None:
    """Another device is killed and started again."""
    _killed(bench, device, "b" if device != "b" else "c")


def check_lost(bench: Bench, device: str) -> None:
    """Nobody starts a device again: requests end with the cause `lost-peer`, soon."""
    victim = "b" if device != "b" else "c"
    with bench.own_ring("chain", device, restart=False, rejoin_s=0.0) as ring, ring.client() as client:
        generate(client, [PROMPTS[0]], 2, ignore_eos=True)
        os.kill(ring.pids[victim], signal.SIGSTOP)
        request = client.submit([PROMPTS[1]], max_new_tokens=COUNT, ignore_eos=True)
        client.wait([request], _BEFORE_S)
        os.kill(ring.pids[victim], signal.SIGKILL)
        client.wait([request], PATIENCE_S)
        same(
            getattr(request.outcome, "cause", None),
            "lost-peer",
            f"cause of the end after the loss of {victim}",
        )


def check_stopped(bench: Bench, device: str) -> None:
    """A device that stands still for a moment costs time alone."""
    right = bench.reference("chain").answer([PROMPTS[1]], COUNT, ignore_eos=True)
    with bench.own_ring("chain", device, restart=False) as ring, ring.client() as client:
        request = client.submit([PROMPTS[1]], max_new_tokens=COUNT, ignore_eos=True)
        for name in ("a", "b", "c"):
            os.kill(ring.pids[name], signal.SIGSTOP)
            client.wait([request], _BEFORE_S)
            os.kill(ring.pids[name], signal.SIGCONT)
        try:
            found = result_of(client, request)
        except RunError as error:
            raise Mismatch(f"a moment of standing still ended a request: {error}") from None
        same([list(row) for row in found.tokens], right.tokens, "tokens behind moments of standing still")
