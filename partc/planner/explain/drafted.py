"""What guessed tokens bring to a plan, in words, and the plans that are best for more of them."""

from __future__ import annotations

from dataclasses import replace

from partc.config.units import format_seconds
from partc.format.placement import assignment_of
from partc.format.plan import Predicted
from partc.planner.exact.solution import Solve
from partc.planner.explain.ranges import ranges
from partc.planner.model.drafted import SHARES
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.problem import Drafts, Problem

_WORTH = 0.995
"""Plans are named that take no more than this part of a token's time."""
_GAIN = 0.99
"""Guesses bring something where a token takes no more than this part of the time without."""


def drafted_text(predicted: Predicted) -> str:
    """A sentence about the gain of guesses; empty where they bring none."""
    drafts = predicted.drafts
    lap_s = next((each.latency_s for each in predicted.phases if each.phase == "decode"), 0.0)
    if not drafts or min(each.token_s for each in drafts) > _GAIN * lap_s:
        return ""
    first, *others = ((format_seconds(each.token_s), each.share) for each in drafts)
    rest = "".join(f", {seconds} {_where(share)}" for seconds, share in others)
    return f"with drafts, the prompt apart: {first[0]} per token {where_guessed(first[1])}{rest}"


def where_guessed(share: float) -> str:
    """`where 30 % of the tokens are guessed right`."""
    return f"where {percent(share)} of the tokens are guessed right"


def percent(share: float) -> str:
    """`30 %`, `2.5 %`."""
    return f"{100 * share:.3g} %"


def better_plans(problem: Problem, evaluation: Evaluation, solve: Solve) -> dict[str, object]:
    """The plans that are better where more or fewer tokens are guessed; of a plan for a latency alone."""
    if problem.drafts is None or not evaluation.drafted:
        return {}
    returns = problem.returns if _returns(evaluation) else 0
    found = []
    for share in SHARES:
        wanted = replace(problem, drafts=Drafts(share, problem.drafts.step_tokens), returns=returns)
        best = solve(wanted, None).solution if wanted.drafted and share != problem.drafted else None
        if best is None:
            continue
        mine, other = _token_s(evaluation, share), _token_s(evaluate(wanted, best.stages), share)
        if other <= _WORTH * mine:
            found.append(
                {
                    "share": share,
                    "token_s": other,
                    "assignment": list(assignment_of(best.stages) or ()),
                    "text": f"planned for it (`workload: {{drafted: {share:g}}}`), a token takes "
                    f"{format_seconds(other)} {_where(share)}, not {format_seconds(mine)}: {ranges(best.stages)}",
                }
            )
    return {"drafts": found} if found else {}


def _token_s(evaluation: Evaluation, share: float) -> float:
    return next(each.token_s for each in evaluation.drafted if each.share == share)


def _returns(evaluation: Evaluation) -> bool:
    runs = [stage.device for stage in evaluation.phases[0].stages]
    return len(runs) > len(set(runs))


def _where(share: float) -> str:
    return "where the answer is a copy" if share == 1.0 else f"at {percent(share)}"
