"""demand.yaml: the requests that a fleet of devices is to answer.

```yaml
demand:                       # each line has rings of its own
  - {rate: 2/s, prompt: 300, answer: 120, first_token: 2 s, per_token: 150 ms}
  - {rate: 30/min, prompt: 40, answer: 20}         # without wishes for its latency
utilisation: 70 %             # of what rings can do; the rest absorbs requests that come close together
devices_per_ring: 4           # at most
```
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partc.config.section import Section
from partc.config.units import Kind, parse_percent, parse_seconds
from partc.config.yamlfile import load_yaml

RATE = Kind("a rate", {"/s": 1, "/min": 1 / 60, "/h": 1 / 3600}, "2/s")
UTILISATION = 0.7
"""The part of a ring's capacity that is planned with, where the file says nothing."""
_RATES_PER_S = (1e-9, 1e9)
"""The least rate and the most: one request in 30 years, and more than any devices answer."""
_TOP_KEYS = ("demand", "utilisation", "devices_per_ring")
_KEYS = ("rate", "prompt", "answer", "first_token", "per_token")
_IN_A_LINE = {key: f"write `{key}` in a line of `demand`, beside its `rate`" for key in _KEYS}
_OF_THE_FILE = {key: f"write `{key}` at the top of the file, beside `demand`" for key in _TOP_KEYS}


@dataclass(frozen=True)
class Wish:
    """Requests of one kind, and how soon they shall be answered."""

    rate_per_s: float
    """Requests per second, in the mean."""
    prompt: int
    """Tokens of the prompt."""
    answer: int
    """Tokens of the answer."""
    first_token_s: float | None = None
    """Longest time to the first token; None: any."""
    per_token_s: float | None = None
    """Longest time between two tokens; None: any."""
    where: str = ""
    """Its place in the file, for messages."""


@dataclass(frozen=True)
class Demand:
    """The content of demand.yaml."""

    wishes: tuple[Wish, ...]
    utilisation: float = UTILISATION
    """The part of the capacity of rings that is planned with."""
    devices_per_ring: int | None = None
    """The most devices of a ring; None: as many as there is time to try."""


def load_demand(path: Path) -> Demand:
    """Reads demand.yaml.

    Raises:
        ConfigError: no such file, or a key, unit or value is wrong.
    """
    return read_demand(load_yaml(path))


def read_demand(top: Section) -> Demand:
    """Checks the content of a demand.yaml."""
    top.allow(_TOP_KEYS, _IN_A_LINE)
    example = "{rate: 2/s, prompt: 300, answer: 120, first_token: 2 s, per_token: 150 ms}"
    top.require("demand", f"demand: [{example}]")
    lines = top.sections("demand")
    if not lines:
        raise top.error("no requests are wanted", "demand", hint=f"add `- {example}`")
    utilisation = top.quantity("utilisation", parse_percent)
    most = top.whole("devices_per_ring", 1) if "devices_per_ring" in top else None
    return Demand(tuple(map(_wish, lines)), utilisation or UTILISATION, most)


def _wish(line: Section) -> Wish:
    line.allow(_KEYS, _OF_THE_FILE)
    for key, example in (("rate", "rate: 2/s"), ("prompt", "prompt: 300"), ("answer", "answer: 120")):
        line.require(key, example)
    rate = line.quantity("rate", RATE.parse)
    assert rate is not None, "it was required"
    least, most = _RATES_PER_S
    if not least <= rate <= most:
        text = f"{line.data['rate']!r} is not between {least:g}/s and {most:g}/s"
        raise line.error(text, "rate", hint=f"for example: {RATE.example}")
    return Wish(
        rate_per_s=rate,
        prompt=line.whole("prompt", 1),
        answer=line.whole("answer", 1),
        first_token_s=line.quantity("first_token", _duration),
        per_token_s=line.quantity("per_token", _duration),
        where=line.place(),
    )


def _duration(value: object, *, where: str | None = None) -> float:
    return parse_seconds(value, where=where, allow_zero=False)
