"""The table of kinds of states: what each room learns of a kind."""

from __future__ import annotations

import inspect

from partc.format.state_kinds import KINDS, USUAL, by_kind, has_rows_alone, is_any_rewritten, is_rewritten
from tests.native.compiled import NATIVE


def test_every_kind_is_a_keyword() -> None:
    parameters = inspect.signature(by_kind).parameters
    assert tuple(parameters) == ("kind", *KINDS)
    assert [by_kind(kind, rows="rows", whole="whole") for kind in KINDS] == [*KINDS]


def test_what_follows_from_several() -> None:
    assert [is_rewritten(kind) for kind in KINDS] == [kind != USUAL for kind in KINDS]
    assert is_any_rewritten(("rows", "whole")) and not is_any_rewritten(("rows",))
    assert (
        has_rows_alone(("rows", "rows")) and not has_rows_alone(("rows", "whole")) and not has_rows_alone(())
    )


def test_the_native_runner_knows_every_kind() -> None:
    """It has one place that tells them apart, which refuses others."""
    text = (NATIVE / "src" / "format" / "build.cpp").read_text()
    body = text[text.index("bool is_rewritten(") :].partition("\n}\n")[0]
    assert [kind for kind in KINDS if f'state.kind == "{kind}"' in body] == [*KINDS]
    others = [path for path in (NATIVE / "src").rglob("*.[ch]pp") if 'kind == "whole"' in path.read_text()]
    assert [path.name for path in others] == ["build.cpp"]
