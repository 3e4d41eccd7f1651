"""Prompts and tensors as they stand on the command line."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from partc.cli.requests import (
    check_task,
    check_tokens,
    pair_requests,
    prompt_texts,
    read_prompts,
)
from partc.errors import RunError, UserError
from partc.format.build import Model
from partc.format.role import Role
from partc.runtime.client.prompts import default_tokens


def test_each_prompt_is_a_request() -> None:
    assert read_prompts(["a", "b"], ["1,2", "3 4"], batch=False) == ["a", "b", [1, 2], [3, 4]]


def test_a_batch_is_one_request() -> None:
    assert read_prompts(["a", "b"], [], batch=True) == [["a", "b"]]
    assert read_prompts([], ["1", "2,3"], batch=True) == [[[1], [2, 3]]]


def test_a_batch_is_of_one_kind() -> None:
    with pytest.raises(RunError, match="texts or token ids"):
        read_prompts(["a"], ["1"], batch=True)


def test_standard_input_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompt.txt").write_text("two\nlines\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("piped\n"))
    assert read_prompts(["-", f"@{tmp_path}/prompt.txt"], [], batch=False) == ["piped", "two\nlines"]


def test_a_missing_file() -> None:
    with pytest.raises(UserError, match="no such file"):
        read_prompts(["@nowhere.txt"], [], batch=False)


@pytest.mark.parametrize("text", ["1,x", "1.5", "one", "", " , ", "1,,2", "1,2,", "1_0", "٣"])
def test_what_is_no_list_of_ids(text: str) -> None:
    with pytest.raises(RunError, match="not a list of token ids"):
        read_prompts([], [text], batch=False)


@pytest.mark.parametrize("text", ["1,-2", "1,8", "99999999999999999999999"])
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(RunError, match="is no token") as caught:
        read_prompts([], [text], batch=False, vocab_size=8)
    assert caught.value.where == f"--token-ids {text}"
    assert caught.value.hint == "give numbers from 0 to 7"


def test_the_texts_of_all_sequences() -> None:
    assert prompt_texts(["a", [1, 2], "b"]) == ["a", "", "b"]
    assert prompt_texts([["a", "b"]]) == ["a", "b"]
    assert prompt_texts([[[1], [2, 3]]]) == ["", ""]


@pytest.mark.parametrize("count", [16, 10**23])
def test_more_tokens_than_fit(count: int) -> None:
    check_tokens(15, 16)
    with pytest.raises(RunError, match="more than max_sequence, 16") as caught:
        check_tokens(count, 16)
    assert caught.value.where == "--tokens"


@pytest.mark.parametrize(
    ("given", "has_prompts", "tensors", "hint"),
    [
        ("x", True, None, "give --input FILE.npz"),
        ("pixel_values", True, None, "give --image FILE"),
        ("input_features", True, None, "give --audio FILE"),
        ("input_ids", False, "--image", "give --prompt TEXT"),
    ],
)
def test_what_a_model_does_not_take(given: str, has_prompts: bool, tensors: str | None, hint: str) -> None:
    takes_tokens = given == "input_ids"
    task = "text-generation" if takes_tokens else "graph"
    model = SimpleNamespace(task=task, generates=takes_tokens, placeholder_token=None)
    role = cast("Role", SimpleNamespace(takes_tokens=takes_tokens, inputs={given: None}, model=model))
    with pytest.raises(RunError, match="this model takes") as caught:
        check_task(role, has_prompts, tensors)
    assert (caught.value.where, caught.value.hint) == (tensors or "--prompt", hint)


@pytest.mark.parametrize(
    ("max_sequence", "prompt", "tokens"),
    [(512, 1, 64), (128, 64, 64), (16, 3, 8), (1, 1, 1), (64, 33, 31), (1024, 961, 63), (64, 64, 1)],
)
def test_the_default_leaves_room_for_the_prompt(max_sequence: int, prompt: int, tokens: int) -> None:
    model = Model("a", "text-generation", "float32", max_sequence, 1, 1, 8, (), None, None, None)
    assert default_tokens(model, [[1] * prompt, [1]]) == tokens


def _with_pictures(placeholder: int | None = 9) -> Role:
    model = SimpleNamespace(placeholder_token=placeholder, generates=True)
    return cast("Role", SimpleNamespace(model=model, takes_tokens=True, inputs=["input_ids", "pixel_values"]))


def test_prompts_and_their_pictures() -> None:
    role, pictures = _with_pictures(), [{"pixel_values": np.full(1, colour)} for colour in (0, 1)]
    assert pair_requests(["a", "b"], pictures, role) == [("a", pictures[0]), ("b", pictures[1])]
    assert pair_requests(["a", "b"], pictures[:1], role) == [("a", pictures[0]), ("b", pictures[0])]
    assert pair_requests(["a"], [], role) == [("a", None)]
    assert pair_requests([], pictures, _with_pictures(None)) == [((), pictures[0]), ((), pictures[1])]
    with pytest.raises(RunError, match="3 prompts and 2 pictures or sounds do not go together"):
        pair_requests(["a", "b", "c"], pictures, role)


def test_a_picture_goes_with_a_prompt() -> None:
    check_task(_with_pictures(), has_prompts=True, tensors="--image")
    with pytest.raises(RunError, match="takes a prompt with it") as caught:
        check_task(_with_pictures(), has_prompts=False, tensors="--image")
    assert (caught.value.where, caught.value.hint) == ("--image FILE", "give --prompt TEXT, too")
    with pytest.raises(RunError, match="takes prompts, not tensors"):
        check_task(_with_pictures(None), has_prompts=True, tensors="--image")
