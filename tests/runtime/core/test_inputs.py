"""Prompts and tensors of clients, held against the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.build import TensorType
from partc.format.frames import to_frame
from partc.format.message_parts import TensorSpec
from partc.runtime.core.source.inputs import (
    check_placeholders,
    check_prompts,
    check_tensors,
    dtype_name,
    padded,
    prompt_ends,
    prompt_parts,
    read_tensors,
    specs_of,
    with_media,
)
from tests.runtime.core.roles import changed, encoder, graph, roles
from tests.runtime.roles import both, roles_of

PICTURES = roles_of({"a": both("emit input_ids")}, picture=("pixels", 9, 2))["a"]
"""A model that takes float32[1, 3] pixels in the place of two tokens 9."""


def test_negative_token_ids() -> None:
    """They cannot travel; a client is told before."""
    with pytest.raises(RunError, match="prompt 1: token -1 is below 0"):
        check_prompts([[1, -1]], 1, roles()["a"])


def test_prompts_of_one_length() -> None:
    role = roles()["a"]
    uniform = changed(role, model=replace(role.model, uniform_positions=True))
    check_prompts([[1, 2], [3, 4]], 1, uniform)
    with pytest.raises(RunError, match="prompts of equal length only"):
        check_prompts([[1, 2], [3]], 1, uniform)


def test_a_model_that_does_not_generate_needs_no_new_tokens() -> None:
    check_prompts([[1, 2]], 0, encoder())


def test_padding() -> None:
    inputs = padded([[4, 5], [6]], encoder())
    assert {name: array.tolist() for name, array in inputs.items()} == {
        "input_ids": [[4, 5], [6, 0]],
        "token_type_ids": [[0, 0], [0, 0]],
    }


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "the input 'x' is missing"),
        ({"x": np.ones((2, 4), np.float32), "y": np.ones(1)}, "the input 'y' is unknown"),
        ({"x": np.ones(4, np.float32)}, "1 dimensions, not 2"),
        ({"x": np.ones((7, 4), np.float32)}, "rows is 7, the plan is for at most 6"),
        ({"x": np.ones((2, 4), np.float64)}, "is float64, the plan says float32"),
        ({"x": np.ones((2, 5), np.float32)}, "has the shape"),
    ],
)
def test_tensors_unlike_the_model_s(arrays: dict[str, Any], message: str) -> None:
    assert check_tensors({"x": np.ones((2, 4), np.float32)}, graph()) == {"rows": 2}
    with pytest.raises(RunError, match=message):
        check_tensors(arrays, graph())


def test_descriptions_of_tensors() -> None:
    """An array of bits is bfloat16 where that is declared."""
    types = {"x": TensorType("bfloat16", (2,)), "y": TensorType("float32", (1,))}
    bits = np.zeros(2, np.uint16)
    assert specs_of({"x": bits, "y": np.zeros(1, np.float32)}, types) == (
        TensorSpec("x", "bfloat16", (2,)),
        TensorSpec("y", "float32", (1,)),
    )
    assert dtype_name(bits, "float32") == "uint16"


def test_tensors_in_frames() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    spec = TensorSpec("x", "int64", (2, 3))
    np.testing.assert_array_equal(read_tensors([spec], [to_frame(array)])["x"], array)
    with pytest.raises(RunError, match="1 tensors are announced, 0 came"):
        read_tensors([spec], [])
    with pytest.raises(RunError, match=r"x: 8 bytes are not those of int64\[2, 3\]"):
        read_tensors([spec], [memoryview(bytes(8))])
    with pytest.raises(RunError, match="is no shape"):
        read_tensors([TensorSpec("x", "int64", (0, 2**63))], [memoryview(b"")])


def test_parts_are_as_few_as_can_be() -> None:
    model = replace(roles(prompt_chunk=4)["a"].model, prompt_chunk=128)
    assert [prompt_ends(width, 1, model) for width in (128, 129, 512)] == [
        [128],
        [64, 129],
        [128, 256, 384, 512],
    ]
    assert prompt_ends(512, 2, model) == prompt_ends(512, 1, replace(model, prompt_chunk=None)) == [512]


def test_parts_have_sizes_that_there_is_code_for() -> None:
    sizes = ((1, 1400), (16, 7400), (64, 26600))
    model = replace(roles()["a"].model, max_sequence=512, prompt_steps=sizes)
    assert [prompt_ends(width, 1, model) for width in (1, 5, 17, 65, 300)] == [
        [1], [1, 2, 3, 4, 5], [16, 17], [64, 65], [64, 128, 192, 256, 272, 288, 300],
    ]  # fmt: skip
    assert prompt_ends(65, 2, model) == [65], "a batch goes whole"


def test_parts_of_a_prompt() -> None:
    role = roles(prompt_chunk=4)["a"]
    ids = np.arange(9, dtype=np.int64)[None]
    parts = list(prompt_parts({"input_ids": ids}, 9, 1, role))
    assert [(begin, end) for begin, end, _ in parts] == [(0, 3), (3, 6), (6, 9)]
    assert [inputs["input_ids"].tolist() for _, _, inputs in parts] == [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]]]
    assert all(inputs["input_ids"].flags.c_contiguous for _, _, inputs in parts)


def test_as_many_placeholders_as_a_picture_takes() -> None:
    check_placeholders([[1, 9, 9]], ["pixels"], PICTURES)
    for prompt, count in (([1, 9], 1), ([1, 9, 9, 9], 3), ([1], 0)):
        with pytest.raises(RunError, match=rf"prompt 1: .* token 9 {count} times, and what is given takes 2"):
            check_placeholders([prompt], ["pixels"], PICTURES)


def test_no_placeholders_without_a_picture() -> None:
    check_placeholders([[1, 2]], [], PICTURES)
    with pytest.raises(RunError, match=r"prompt 2: .* token 9 1 times, and nothing is given"):
        check_placeholders([[1, 2], [9]], [], PICTURES)


def test_no_picture_for_a_model_of_text_alone() -> None:
    check_placeholders([[9, 9]], [], roles()["a"])
    with pytest.raises(RunError, match="takes prompts, not tensors"):
        check_placeholders([[9, 9]], ["pixels"], roles()["a"])


def test_a_picture_or_a_blank_one() -> None:
    ids, pixels = np.ones((1, 2), np.int64), np.ones((1, 3), np.float32)
    given = with_media({"input_ids": ids}, {"pixels": pixels}, PICTURES)
    blank = with_media({"input_ids": ids}, {}, PICTURES)
    assert [*given] == [*blank] == ["input_ids", "pixels"]
    assert given["pixels"] is pixels
    assert blank["pixels"].dtype == np.float32
    assert blank["pixels"].tolist() == [[0, 0, 0]]
    assert [*with_media({"input_ids": ids}, {}, roles()["a"])] == ["input_ids"]
