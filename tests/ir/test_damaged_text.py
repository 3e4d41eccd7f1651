"""IR text that is damaged, or written to do harm: a module, or an error that names file and line."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.errors import UserError
from partc.format.dims import evaluate, symbols
from partc.ir.text import parse_module, print_module

_GOLDEN = Path(__file__).resolve().parents[2] / "golden"
_ODD = (
    *(
        "9" * 30,
        "9" * 5000,
        "-1",
        "0",
        "1.5",
        "1e999",
        "NaN",
        "Infinity",
        "null",
        "true",
        "²",
        "٣",
        "\x00",
        "//",
    ),
    *("[", "{", "(", '"', "'", "%", "_", "x", "[]", "{}", '"\\ud800"', "n//0", "f(x)", "lambda: 0", "a.b"),
    *("[" * 3000, "(" * 3000, "-" * 3000, '{"a":' * 3000, "f32[", 'base64"!!"', "|> transpose(9)"),
)


def _texts() -> list[str]:
    """The IR in golden cases, short ones."""
    blocks = [
        block.partition("\n")[2]
        for file in sorted(_GOLDEN.rglob("*.md"))
        for block in file.read_text().split("```")
    ]
    return [block for block in blocks if block.startswith("partc-ir 1") and len(block) < 3000]


def _damaged(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    match draw.randrange(4):
        case 0:
            place = draw.randrange(len(text))
            return text[:place] + draw.choice(_ODD) + text[place + draw.randint(0, 5) :]
        case 1:
            del lines[draw.randrange(len(lines))]
        case 2:
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
        case _:
            words = list(re.finditer(r'-?\d+(\.\d+)?|"[^"]*"|\[[^\]]*\]|\w+', text))
            word = draw.choice(words)
            return text[: word.start()] + draw.choice(_ODD) + text[word.end() :]
    return "\n".join(lines)


def test_damaged_text_is_parsed_or_refused() -> None:
    texts, draw = _texts(), random.Random(11)
    assert len(texts) > 20
    parsed = 0
    for _ in range(2000):
        text = _damaged(draw.choice(texts), draw)
        try:
            print_module(parse_module(text, file="a.partc"))
        except UserError as error:
            assert str(error.where).startswith("a.partc:"), text
        else:
            parsed += 1
    assert parsed > 20


_HEADER = "partc-ir 1\nmodel {}\ngraph g opset 18 {{\n  input %x: f32[n]\n  %y: f32[n] = Relu(%x)\n  output %y\n}}\n"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ('{"name": "m", "task": "graph", "max_batch": "2"}', "Expected `int`, got `str` - at `$.max_batch`"),
        ('{"name": "m", "task": "graph", "max_batch": 0}', "a number in the model header is below 1"),
        ('{"name": "m", "task": "graph", "dims": {"n": -3}}', "a number in the model header is below 1"),
        ('{"name": "m", "task": "graph", "dims": [3]}', "Expected `object`, got `array` - at `$.dims`"),
        ('{"name": "m", "task": "graph", "max_batch": 1e999}', "the number 1e999 is too large"),
        (f'{{"name": "m", "task": "graph", "max_batch": {"9" * 400}}}', "is too large"),
        (f'{{"name": "m", "task": {"[" * 5000}', "nested too deeply"),
        ('{"name": "m", "name": "n", "task": "graph"}', "the key 'name' stands twice"),
    ],
)
def test_a_wrong_header_is_named(model: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_module(_HEADER.format(model), file="a.partc")
    assert said in caught.value.message
    assert str(caught.value.where).startswith("a.partc:2")
    assert len(str(caught.value)) < 1000


def test_a_submodule_without_nodes_is_refused() -> None:
    text = _HEADER.format('{"name": "m", "task": "graph"}').replace("  output", "  submodule 0\n  output")
    with pytest.raises(UserError, match="a sub-module without nodes"):
        parse_module(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "n+",
            "n**2",
            "n/2",
            "n%2",
            "f(n)",
            "lambda: 0",
            "n if n else 1",
            "n.a",
            "[n]",
            "~n",
            "n == 1",
        ),
        *(
            "²",
            "größe",
            "ﬁ",
            "1__0",
            "1e3",
            "0x10",
            "'n'",
            "n\0",
            "9" * 30,
            "(" * 1000,
            "-" * 1000 + "n",
            "n+" * 3000,
        ),
    ],
)
def test_what_is_no_size_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        symbols(text)


def test_a_size_divided_by_zero_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="divides by zero"):
        evaluate("n//(n - 3)", {"n": 3})


@pytest.mark.parametrize("size", ["9" * 30, "9" * 5000])
def test_numbers_that_64_bits_cannot_hold_are_refused(size: str) -> None:
    text = _HEADER.format('{"name": "m", "task": "graph"}')
    for old, new in (("%x: f32[n]", f"%x: f32[{size}]"), ("Relu(%x)", f"Relu(%x) {{axis = {size}}}")):
        with pytest.raises(UserError) as caught:
            parse_module(text.replace(old, new), file="a.partc")
        assert str(caught.value.where).startswith("a.partc:")


def test_passes_meet_no_text_that_they_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, draw = _texts(), random.Random(12)
    file = tmp_path / "a.partc"
    for _ in range(500):
        file.write_text(_damaged(draw.choice(texts), draw))
        code = run(["opt", str(file), "-p", "canonicalize,infer-sizes,find-cuts,form-submodules"])
        assert code in (0, 1), f"{capsys.readouterr().err}\n{file.read_text()}"


def test_lists_in_lists_in_lists_are_refused() -> None:
    text = _HEADER.format('{"name": "m", "task": "graph"}').replace(
        "Relu(%x)", f"Relu(%x) {{axis = {'[' * 5000}"
    )
    with pytest.raises(UserError, match="nested too deeply") as caught:
        parse_module(text, file="a.partc")
    assert caught.value.where == "a.partc:5"
