"""When to move sub-modules: `Balancer.on(event, now)` returns a decision; no I/O, no clock.

| state | window | moved | refused |
| --- | --- | --- | --- |
| steady | a limit is reached: a move (1) → moving; a move pays (2): half of it → moving | | |
| moving | waits | made for a gain: trial; for a limit: steady | steady |
| trial | 10 % slower than before the move: back → returning; else steady | | |
| returning | waits; after a refusal: back, again | steady | waits for a window |

Where the placement in force is neither that of before nor that of after a move (a device was lost), the state is steady
again. A window that began before the placement in force does not exist (`Window`). A move that somebody else made
counts as one of ours for the pauses: what was moved by hand does not return at once.

1. A device at a limit gives all that others hold, whatever the gain, and at once; after a refusal a cool-down later.
2. Re-planned with the measured times, among the placements that the pieces allow,
   - the best placement is 10 % faster, by the smoothed times and by those of the window alone, in 3 windows in a row;
   - gain per token x tokens still to come > 2 x cost of a move;
   - the last move is a cool-down ago: 30 s, or 20 x the cost of a move if that is more; ten of them before a sub-module
     returns to a device that it left, twice as many each time (`pauses.py`): a load that comes and goes makes no more
     moves than it has periods.
   A plan for throughput is left as it is while one request is in flight: nothing overlaps then.
   If half of the move already gains 10 %, only half is made: a move may cost more than the plan knows (mesh-llm), and
   the way is shorter than it seems.

The rule is put together from these (evidence: the figures of each are its authors'):
- LinguaLinked 3.3: movable sub-modules on the disks of two neighbours, and Eq. 5 again with the others fixed. It says
  "when the load is imbalanced" and no more; here that is the rule above. Its assignment minimises a sum without memory
  of caches; here `optimal` is asked, restricted to the pieces that lie there. Its switch stops the ring; ours does not.
- mesh-llm `auto_balance.rs`: a difference of busy shares of 20 % in 3 windows of 60 s, a cool-down of 300 s, half
  steps, trial and roll-back at -10 %. Here the gain is that of a plan, not a difference of shares: a slow device with
  little to do is no reason to move. Windows are counted in steps, so that slow rings are not judged by few of them.
- Petals `block_selection.py`: a server moves if the swarm's throughput would be 1 / 0.75 times what it is, each for
  itself, and prefers to stay where it gains less than 0.1 %. Here one planner moves all, so no two move at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import assert_never

from partc.balance.events import Back, Decision, Event, Move, Moved, MovedByHand, Refused, Stay, Window
from partc.balance.pauses import Pauses
from partc.balance.pieces import Pieces
from partc.balance.replan import Conditions, Replanner
from partc.balance.speeds import Speeds, ratios_of
from partc.config.units import format_seconds
from partc.format.placement import Stages
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem
from partc.planner.model.stages import devices_of

GAIN = 0.10
"""A move gains at least this part of the time per token; a trial may lose no more."""
WINDOWS = 3
"""Windows in a row in which it would."""
DEFERRALS = 3
"""Windows that a trial waits for one with as many requests in flight as before; then it stays."""
PAYS_TWICE = 2
"""A move saves at least so many times what it costs."""
AVOIDED = 1000.0
"""A device at its limit counts as so many times slower: it gets only what no other can take."""
FIRST_COST_S = 2.5
"""Cost of a move before any was measured: LinguaLinked's release and load of 8 fp32 modules of 1.7b (section 4)."""


@dataclass(frozen=True)
class Steady:
    """The placement in force is to stay."""

    windows: tuple[Window, ...] = ()
    """The last ones in a row in which a move would have gained enough."""


@dataclass(frozen=True)
class Moving:
    """A move is under way."""

    before: Stages
    move: Move
    step_s: float
    """Seconds per step before it."""
    requests: int
    """Requests that were in flight then."""
    on_trial: bool


@dataclass(frozen=True)
class Trial:
    """A move is in force until the next window judges it."""

    moving: Moving
    deferred: int = 0
    """Windows that could not judge it: with more requests in flight than before, or fewer."""


@dataclass(frozen=True)
class Returning:
    """A move is being taken back; it is not over until that has succeeded."""

    moving: Moving
    back: Back
    asked: bool = True


State = Steady | Moving | Trial | Returning


class Balancer:
    """Decides on moves; see the top of this file."""

    def __init__(self, problem: Problem, pieces: Pieces, cost_s: float = FIRST_COST_S) -> None:
        """For a plan's problem and the pieces of its build; `cost_s` is what a move is expected to cost."""
        self.state: State = Steady()
        self._replanner = Replanner(problem, pieces)
        self._overlaps = by_objective(problem.objective, latency=False, throughput=True)
        self._speeds = Speeds()
        self._pauses = Pauses(cost_s)

    def on(self, event: Event, now: float) -> Decision:
        """Take an event; `now` is in seconds on the clock of all events."""
        match event:
            case Window():
                return self._on_window(event, now)
            case Moved(cost_s=cost_s):
                self._pauses.cost_s = cost_s
                return self._on_moved(now)
            case MovedByHand(before=before, after=after):
                self._pauses.moved(before, after, now)
                return Stay("somebody else has moved something")
            case Refused(reason=reason):
                return self._on_refused(reason, now)
            case _:
                assert_never(event)

    def _on_moved(self, now: float) -> Stay:
        match self.state:
            case Moving(before=before, move=move, on_trial=on_trial) as moving:
                self._pauses.moved(before, move.stages, now)
                self.state = Trial(moving) if on_trial else Steady()
            case Returning(moving=moving):
                self._pauses.moved(moving.move.stages, moving.before, now)
                self.state = Steady()
            case Steady() | Trial():
                pass  # somebody else's move
            case _:
                assert_never(self.state)
        return Stay("the placement is in force")

    def _on_refused(self, reason: str, now: float) -> Stay:
        self._pauses.refused(now)
        match self.state:
            case Moving():
                self.state = Steady()
            case Returning(moving=moving, back=back):
                self.state = Returning(moving, back, asked=False)
            case Steady() | Trial():
                pass
            case _:
                assert_never(self.state)
        return Stay(f"refused: {reason}")

    def _on_window(self, window: Window, now: float) -> Decision:
        self._speeds.update(window.seconds, self._replanner.planned(window.stages), now)
        self._speeds.forget(now - self._pauses.return_s)
        match self.state:
            case Moving():
                return Stay("a move is under way")
            case Trial() as trial:
                return self._judge(trial, window)
            case Returning(moving=moving, back=back, asked=asked):
                if asked:
                    return Stay("a move is being taken back")
                return self._return(moving, back, window)
            case Steady(windows=windows):
                return self._leave_limits(window, now) or self._seek(window, windows, now)
            case _:
                assert_never(self.state)

    def _judge(self, trial: Trial, window: Window) -> Decision:
        """The window after a move decides whether it stays."""
        moving = trial.moving
        if window.requests != moving.requests and trial.deferred < DEFERRALS:
            self.state = Trial(moving, trial.deferred + 1)
            return Stay(f"{window.requests} requests in flight say nothing about {moving.requests}")
        change = f"{_change(moving.step_s, window.step_s)} per step"
        if window.requests != moving.requests or window.step_s <= (1 + GAIN) * moving.step_s:
            self.state = Steady()
            return Stay(f"the move stays: {change}")
        return self._return(moving, Back(moving.before, f"the move made it slower: {change}"), window)

    def _return(self, moving: Moving, back: Back, window: Window) -> Decision:
        if window.stages != moving.move.stages:
            self.state = Steady()
            return Stay("the placement has changed since the move")
        self.state = Returning(moving, back)
        return back

    def _leave_limits(self, window: Window, now: float) -> Decision | None:
        """The planned move of devices that are at a limit; None where nothing is left to do about any."""
        if not window.limits or self._pauses.after_refusal_s(now) > 0:
            return None
        ratios = self._speeds.ratios(self._replanner.names)
        avoided = {name: ratios[name] * AVOIDED for name in window.limits}
        goal = self._replanner.best(window.stages, Conditions({**ratios, **avoided}, window.free_bytes))
        if goal is None or not _relieves(window, goal):
            return None
        before, after = (self._replanner.seconds(stages, ratios) for stages in (window.stages, goal))
        said = "; ".join(f"{name}: {limit}" for name, limit in sorted(window.limits.items()))
        return self._go([window], Move(goal, before, after, said), on_trial=False)

    def _seek(self, window: Window, windows: tuple[Window, ...], now: float) -> Decision:
        """The move that gains enough, for long enough."""
        self.state = Steady()
        if self._overlaps and window.requests <= 1:
            return Stay("one request in flight says nothing about throughput")
        # A device at its limit gets no more: it has no memory for it.
        free_bytes = {**window.free_bytes, **dict.fromkeys(window.limits, 0.0)}
        under = Conditions(self._speeds.ratios(self._replanner.names), free_bytes)
        goal = self._replanner.better(window.stages, under, GAIN)
        if goal is None or self._gain_alone(window, goal) < GAIN:
            return Stay(f"no placement gains {GAIN:.0%}")
        windows = (*windows, window)[-WINDOWS:]
        self.state = Steady(windows)
        if len(windows) < WINDOWS:
            return Stay(f"a placement gains {GAIN:.0%} in {len(windows)} of {WINDOWS} windows")
        move = self._towards(window.stages, goal, under)
        if (wait_s := self._pauses.wait_s(window.stages, move.stages, now)) > 0:
            return Stay(f"the last move is too recent: {wait_s:.0f} s to wait")
        saved_s = (move.before_s - move.after_s) * window.remaining_tokens
        if saved_s <= PAYS_TWICE * self._pauses.cost_s:
            return Stay(f"a move would save {saved_s:.3g} s and cost {self._pauses.cost_s:.3g} s")
        return self._go(windows, move, on_trial=True)

    def _gain_alone(self, window: Window, goal: Stages) -> float:
        """The gain by the times of this window alone."""
        planned = self._replanner.planned(window.stages)
        smoothed = self._speeds.ratios(self._replanner.names)
        ratios = {**smoothed, **ratios_of(window.seconds, planned)}
        return 1 - self._replanner.seconds(goal, ratios) / self._replanner.seconds(window.stages, ratios)

    def _towards(self, now: Stages, goal: Stages, under: Conditions) -> Move:
        """Half the way to the best placement where that gains enough already, else all of it."""
        before = self._replanner.seconds(now, under.ratios)
        half = self._replanner.half_way(now, goal)
        after = self._replanner.seconds(half, under.ratios) if half else before
        if half is None or 1 - after / before < GAIN:
            half, after = goal, self._replanner.seconds(goal, under.ratios)
        return Move(half, before, after, f"{_change(before, after)} per token")

    def _go(self, windows: Sequence[Window], move: Move, *, on_trial: bool) -> Move:
        """Decide on a move; the last of the windows is now, and those like it say how fast it is."""
        last = windows[-1]
        step_s = fmean(window.step_s for window in windows if window.requests == last.requests)
        self.state = Moving(last.stages, move, step_s, last.requests, on_trial)
        return move


def _relieves(window: Window, goal: Stages) -> bool:
    """Whether a placement takes something from a device at its limit, and gives none anything."""
    pairs = list(zip(devices_of(window.stages), devices_of(goal), strict=True))
    takes = any(before in window.limits and before != after for before, after in pairs)
    gives = any(after in window.limits and before != after for before, after in pairs)
    return takes and not gives


def _change(before_s: float, after_s: float) -> str:
    return f"{format_seconds(before_s)} → {format_seconds(after_s)}"
