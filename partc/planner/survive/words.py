"""The words for a loss that is survived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.config.units import format_bytes, format_seconds

_SAME, _OTHER = "the same tokens", "tokens may differ from there on, what was said stays"
"""The promise to requests in flight."""


def loss_text(
    lost: str,
    value: str,
    names: Sequence[str],
    disk: Mapping[str, float],
    load_s: float | None,
    *,
    same_tokens: bool,
) -> str:
    """`if board is lost: 7.20 ms per token on phone and old; 1.30 GiB more disk on old; the same tokens`.

    Args:
        lost: the device.
        value: of the plan of those that are left, in words.
        names: those that it uses.
        disk: device → bytes on its disk for this loss.
        load_s: seconds until all is loaded; None: not known.
        same_tokens: whether requests in flight get the same tokens.
    """
    *others, last = names
    joined = " and ".join(filter(None, (", ".join(others), last)))
    more = [f"{format_bytes(count)} more disk on {name}" for name, count in disk.items()]
    more += [f"{format_seconds(load_s)} to load it"] if load_s else []
    return "; ".join([f"if {lost} is lost: {value} on {joined}", *more, _SAME if same_tokens else _OTHER])
