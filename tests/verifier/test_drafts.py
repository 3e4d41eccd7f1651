"""`partc verify --drafts`: what it refuses."""

from __future__ import annotations

import pytest
from msgspec import structs

from partc.errors import RunError
from partc.verifier.drafts import DRAFTS, check_guesses
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
