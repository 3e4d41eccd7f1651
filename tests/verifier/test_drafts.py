"""`partc verify --drafts`: what it refuses."""

from __future__ import annotations

import pytest
from msgspec import structs

from partc.cli.verdict import _guess_table
from partc.errors import RunError
from partc.verifier.drafts import DRAFTS, check_guesses
from partc.verifier.report import Guessed
from tests.runtime.core.roles import changed, roles


def test_a_build_that_guesses_nothing_is_refused() -> None:
    role = roles()["a"]
    silent = changed(role, model=structs.replace(role.model, drafts=False))
    with pytest.raises(RunError, match="no tokens are guessed: the build guesses none"):
        check_guesses(silent)


def test_drafts_with_mistakes_are_wrong_in_every_third_token() -> None:
    answer = list(range(30))
    drafted = DRAFTS["the answer, a third wrong"](answer, 30)
    assert [at for at in range(30) if drafted[at] != answer[at]] == list(range(2, 30, 3))
    assert max(drafted) < 30


def test_the_table_says_tokens_the_share_of_guesses_and_the_time() -> None:
    each = Guessed("prompt of 7 tokens", "the answer", 64, 64, 54, 48, plain_s=0.3, drafted_s=0.2)
    row = [next(iter(column.cells)) for column in _guess_table([each]).columns]
    assert row == ["prompt of 7 tokens", "the answer", "64 of 64", "48 of 54", "75%", "1.50"]
