"""The output of `partc run` without a ring: prompts on a terminal, limits, units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from partc.cli.results import print_limits, print_results, print_timings, print_tokens, results_json
from partc.runtime.client.results import Result, Tokens
from tests.runtime.roles import chain, roles_of


def _result(tokens: int, finish: str, prompt: int = 4) -> Result:
    return Result([[0] * prompt], [[1] * tokens], [" the end"], [finish], {}, 0.1, {}, [])


def test_prompts_stand_before_their_continuation(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([_result(3, "stop")] * 2, None, streamed=False, prompts=["One", "Two"])
    assert capsys.readouterr().out == "[1]\nOne the end\n[2]\nTwo the end\n"


def test_every_picture_of_a_batch_has_its_labels(capsys: pytest.CaptureFixture[str]) -> None:
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    result = Result([], [], [], [], {"logits": logits}, 0.1, {}, [])
    print_results([result], ["cat", "dog"], streamed=False)
    assert capsys.readouterr().out.splitlines() == [
        "[1]", " 75.0%  dog", " 25.0%  cat", "[2]", " 50.0%  cat", " 50.0%  dog"
    ]  # fmt: skip
    (request,) = results_json([result], ["cat", "dog"])["requests"]
    found = [[one["label"] for one in scores] for scores in request["scores"]]
    assert found == [["dog", "cat"], ["cat", "dog"]]
    assert request["scores"][0][0]["score"] == pytest.approx(0.75)
    assert "scores" not in results_json([result], None)["requests"][0]


def test_a_stream_begins_with_its_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    for step, text in enumerate([" the", " end"]):
        print_tokens(Tokens(step, [1], [text]), prompt="One")
    assert capsys.readouterr().out == "One the end"


def test_without_prompts_only_the_continuation(capsys: pytest.CaptureFixture[str]) -> None:
    print_results([_result(3, "length")], None, streamed=False)
    assert capsys.readouterr().out == " the end\n"


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([_result(8, "stop")], ""),
        (
            [_result(8, "length")],
            "note: stopped at the limit of 8 new tokens, not at an end\n"
            "  hint: --tokens N for more, here at most 12\n",
        ),
        (
            [_result(2, "stop"), _result(8, "length"), _result(8, "length", prompt=6)],
            "note: [2] [3] stopped at the limit of 8 new tokens, not at an end\n"
            "  hint: --tokens N for more, here at most 10\n",
        ),
        (
            [_result(12, "length")],
            "note: stopped at the limit of 12 new tokens, not at an end\n"
            "  hint: compile with a larger max_sequence\n",
        ),
    ],
)
def test_a_text_that_the_limit_ended(
    results: list[Result], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_limits(results, roles_of(chain("a p0, b p1"), max_sequence=16)["a"].model)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", told)


def test_guesses_are_said_with_their_work(capsys: pytest.CaptureFixture[str]) -> None:
    plain = _result(40, "length")
    found = replace(plain, drafted=30, accepted=10)
    print_timings([found, found])
    said = " ".join(capsys.readouterr().err.split())
    assert "60 tokens guessed, 20 of them right (25% of all), 1.50 rows a token" in said
    (request,) = results_json([found], None)["requests"]
    assert (request["drafted_share"], request["rows_per_token"]) == (0.25, 1.5)
    print_timings([plain])
    assert "guessed" not in capsys.readouterr().err
