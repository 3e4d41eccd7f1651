"""Prompts and tensors as they stand on the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from partc.cli.requests import check_task, default_tokens, read_prompts
from partc.errors import RunError, UserError


def test_each_prompt_is_a_request() -> None:
    assert read_prompts(["a", "b"], ["1,2", "3 4"], batch=False) == ["a", "b", [1, 2], [3, 4]]


def test_a_batch_is_one_request() -> None:
    assert read_prompts(["a", "b"], [], batch=True) == [["a", "b"]]
    assert read_prompts([], ["1", "2,3"], batch=True) == [[[1], [2, 3]]]


def test_a_batch_is_of_one_kind() -> None:
    with pytest.raises(RunError, match="texts or of token ids"):
        read_prompts(["a"], ["1"], batch=True)


def test_standard_input_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompt.txt").write_text("two\nlines\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("piped\n"))
    assert read_prompts(["-", f"@{tmp_path}/prompt.txt"], [], batch=False) == ["piped", "two\nlines"]


def test_a_missing_file() -> None:
    with pytest.raises(UserError, match="no such file"):
        read_prompts(["@nowhere.txt"], [], batch=False)


@pytest.mark.parametrize("text", ["1,x", "1.5", "one"])
def test_what_is_no_list_of_ids(text: str) -> None:
    with pytest.raises(RunError, match="no list of token ids"):
        read_prompts([], [text], batch=False)


@pytest.mark.parametrize(
    ("task", "has_prompts", "has_tensors"), [("graph", True, False), ("text-generation", False, True)]
)
def test_what_a_model_does_not_take(task: str, has_prompts: bool, has_tensors: bool) -> None:
    with pytest.raises(RunError, match="this model takes"):
        check_task(task, has_prompts, has_tensors)


@pytest.mark.parametrize(("max_sequence", "tokens"), [(512, 64), (128, 64), (16, 8), (1, 1)])
def test_the_default_leaves_room_for_the_prompt(max_sequence: int, tokens: int) -> None:
    assert default_tokens(max_sequence) == tokens
