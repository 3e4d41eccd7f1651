"""The JSON form of what a problem says of guesses: `{"share": 0.3, "step_tokens": [[2, 1.06], [8, 1.5]]}`."""

from __future__ import annotations

from partc.config.section import Section, describe
from partc.planner.model.problem import Drafts

_EXAMPLE = '"drafts": {"share": 0.3, "step_tokens": [[2, 1.06], [8, 1.5]]}'


def read_drafts(top: Section) -> Drafts | None:
    """The guesses of a problem; None where it has none.

    Raises:
        ConfigError: a share that is none, a price that cannot be, or guesses in steps of several sequences.
    """
    if "drafts" not in top:
        return None
    section = top.section("drafts")
    section.allow(("share", "step_tokens"))
    share = section.number("share", 0.0)
    if share > 1.0:
        raise section.error(
            f"expected a share of tokens from 0 to 1, found {share:g}", "share", hint=_EXAMPLE
        )
    if top.whole("batch", 1) > 1:
        raise top.error("tokens are guessed in steps of one sequence alone", "drafts", hint="leave one out")
    return Drafts(share, tuple(_prices(section)))


def drafts_json(drafts: Drafts) -> dict[str, object]:
    """The JSON form; `read_drafts` gives back equal ones."""
    prices = {"step_tokens": [list(each) for each in drafts.step_tokens]} if drafts.step_tokens else {}
    return {"share": drafts.share, **prices}


def _prices(section: Section) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    data = section.data.get("step_tokens", [])
    for item in data if isinstance(data, list) else [data]:
        price = _price(item)
        if price is None or (found and price[0] <= found[-1][0]):
            raise section.error(
                f"expected numbers of tokens from 2, ascending, each with a time by that of one token from 1 on, "
                f"found {describe(item)}",
                "step_tokens",
                hint=_EXAMPLE,
            )
        found.append(price)
    return found


def _price(item: object) -> tuple[int, float] | None:
    match item:
        case [int(tokens), int(cost) | float(cost)] if not isinstance(tokens, bool):
            return (tokens, float(cost)) if tokens > 1 and 1.0 <= cost <= tokens else None
        case _:
            return None
