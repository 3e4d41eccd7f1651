"""golden.yaml: the models whose outcome is kept, and what of it.

```yaml
cases:
  storyteller:                          # a folder of that name lies beside this file
    model: ../model.yaml                # as for `partc compile`; relative to this file
    devices: ../devices.yaml
    keep: [graph, plan, bundle, tokens] # default: graph, plan
    prompts: ["Once upon a time"]       # for tokens
    tokens: 32                          # tokens of an answer
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partc.api.checks import CUT_RULES
from partc.api.compiling import CUT_RULE
from partc.config.section import Section, describe
from partc.config.yamlfile import load_yaml
from partc.errors import ConfigError
from partc.pipeline.default import PHASES
from partc.planner.solve import STRATEGIES
from partc.runtime.client.prompts import half_at_most

GOLDEN_FILE = "golden.yaml"
PARTS = ("graph", "weights", "plan", "bundle", "tokens", "cost")
"""What can be kept, in the order in which one follows from another."""
BUILT = ("bundle", "tokens", "cost")
"""Those for which weights are read and a build is made."""
USUAL = ("graph", "plan")
AFTER = "coarsen-submodules"
"""The pass after which a graph is kept, where the file says nothing: the last one before costs and devices count."""
_KEYS = (
    "model", "devices", "keep", "after", "prompts", "tokens", "times", "text", "strategy", "cut_rule",
)  # fmt: skip
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*$")
TOKENS = 32
"""Tokens of an answer at most, where nothing is said."""
_PASSES = tuple(dict.fromkeys(name for phase in ("simplify", "cut", "measure") for name in PHASES[phase]))


@dataclass(frozen=True)
class Case:
    """One model on some devices, and what is kept of it."""

    name: str
    folder: Path
    """Where its record lies."""
    model: str
    """What `partc compile` takes."""
    devices: Path
    keep: tuple[str, ...] = USUAL
    """Some of `PARTS`."""
    after: tuple[str, ...] = (AFTER,)
    """Passes after which the graph is kept."""
    prompts: tuple[str | tuple[int, ...], ...] = ()
    """Texts or token ids."""
    tokens: int | None = None
    """Tokens of an answer at most; None: `most_tokens` says how many."""
    times: bool = False
    """Whether predicted times are a part of the plan."""
    text: Path | None = None
    """The text on which the cost of quantisation is measured."""
    strategy: str = "optimal"
    cut_rule: str = CUT_RULE

    def most_tokens(self, max_sequence: int) -> int:
        """Tokens of an answer at most, where nothing is said 32, or half of a short `max_sequence`."""
        return half_at_most(max_sequence, TOKENS) if self.tokens is None else self.tokens

    @property
    def is_built(self) -> bool:
        """Whether a build has to be made."""
        return any(part in BUILT for part in self.keep)


def load_cases(folder: Path) -> list[Case]:
    """The cases of a golden.yaml, which may be given itself or by its folder.

    Raises:
        ConfigError: no such file, or a key or value is wrong.
    """
    file = folder if folder.suffix in (".yaml", ".yml") else folder / GOLDEN_FILE
    top = load_yaml(file)
    top.allow(("cases",), dict.fromkeys(_KEYS, "write it in a case"))
    cases = top.section("cases")
    if not cases.data:
        raise top.error(
            "there are no cases", "cases", hint="write `NAME: {model: model.yaml, devices: devices.yaml}`"
        )
    return [_case(cases, name, file.parent) for name in cases.data]


def _case(cases: Section, name: str, folder: Path) -> Case:
    if not _NAME.match(name):
        raise cases.error("not a name for a folder", name, hint="use letters, digits, - and _")
    section = cases.section(name)
    section.allow(_KEYS)
    keep = _names(section, "keep", PARTS, USUAL)
    case = Case(
        name,
        folder / name,
        _model(section, folder),
        folder / section.text("devices"),
        keep,
        _names(section, "after", _PASSES, (AFTER,)),
        _prompts(section),
        section.whole("tokens", 1) if "tokens" in section else None,
        _flag(section, "times"),
        folder / section.text("text") if "text" in section else None,
        section.choice("strategy", tuple(STRATEGIES), "optimal"),
        section.choice("cut_rule", CUT_RULES, CUT_RULE),
    )
    if "tokens" in keep and not case.prompts:
        raise section.error(
            "there is nothing to answer",
            "keep",
            hint='write `prompts: ["Once upon a time"]`; a model without tokens has none to keep',
        )
    return case


def _model(section: Section, folder: Path) -> str:
    """A path is relative to golden.yaml; the id of a hub is none."""
    model = section.text("model")
    path = folder / model
    return model if "/" in model and not path.exists() and not model.startswith(".") else str(path)


def _names(section: Section, key: str, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    """A list of known names, in the order in which they are known."""
    given = section.data.get(key, list(default))
    if given == []:
        raise section.error(
            "expected a list of names, found an empty one", key, hint=f"there are {', '.join(known)}"
        )
    if not isinstance(given, list) or not given or not all(name in known for name in given):
        wrong = (
            next((name for name in given if name not in known), given) if isinstance(given, list) else given
        )
        hint = f"there are {', '.join(known)}"
        expected = "expected other names" if isinstance(given, list) else "expected a list of names"
        raise section.error(f"{expected}, found {describe(wrong)}", key, hint=hint)
    return tuple(name for name in known if name in given)


def _flag(section: Section, key: str) -> bool:
    value = section.data.get(key, False)
    if not isinstance(value, bool):
        raise section.error(f"expected true or false, found {describe(value)}", key)
    return value


def _prompts(section: Section) -> tuple[str | tuple[int, ...], ...]:
    given = section.data.get("prompts", [])
    if not isinstance(given, list):
        raise section.error(
            "expected a list of prompts", "prompts", hint='write `prompts: ["Once upon a time"]`'
        )
    return tuple(_prompt(section, entry) for entry in given)


def _prompt(section: Section, entry: object) -> str | tuple[int, ...]:
    if isinstance(entry, str) and entry:
        return entry
    if isinstance(entry, list) and entry and all(isinstance(token, int) and token >= 0 for token in entry):
        return tuple(entry)
    raise section.error(
        f"not a prompt: {describe(entry)}", "prompts", hint="give a text, or a list of token ids"
    )


def select(cases: list[Case], names: tuple[str, ...], where: str) -> list[Case]:
    """The cases of these names; all of them without names.

    Raises:
        ConfigError: there is no case of a name.
    """
    known: Mapping[str, Case] = {case.name: case for case in cases}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no case is called {name!r}", where=where, hint=f"there are {', '.join(known)}"
            )
    return [known[name] for name in names] if names else cases
