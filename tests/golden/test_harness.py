"""The harness itself: what it reads it writes back, and what is wrong with a case it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.case import Block, Case, CaseError, Outcome, parse_case, print_case
from tests.golden.shell import input_files, run_case
from tests.golden.views import difference, picked, substituted

_TEXT = """A title.

```sh hf
partc opt a.partc -p canonicalize
```

```file a.partc
broken
```

```stdout
out
```

```exit
1
```
"""


def test_round_trip() -> None:
    assert print_case(parse_case(_TEXT)) == _TEXT


def test_parts_of_a_case() -> None:
    case = parse_case(_TEXT)
    assert case.markers == ["hf"]
    assert case.files == {"a.partc": "broken\n"}
    assert (case.expected("stdout"), case.expected("stderr"), case.expected("exit")) == ("out\n", "", "1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no block", "no block"),
        ("```sh\npartc\n", "never closed"),
        ("```what\n```\n", "unknown block"),
        ("```sh\npartc\n```\n```stdout\n```\n```stdout\n```\n", "more than one"),
    ],
)
def test_a_broken_case_is_refused(text: str, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        parse_case(text)


def test_an_update_replaces_expectations_alone() -> None:
    case = parse_case(_TEXT).with_outcome(Outcome("new\n", "", 0))
    assert case.blocks[:2] == parse_case(_TEXT).blocks[:2]
    assert case.blocks[2:] == (Block("stdout", "", "new\n"),)


def test_a_silent_success_is_an_expectation() -> None:
    assert parse_case(_TEXT).with_outcome(Outcome("", "", 0)).has_expectation


def test_an_unused_file_is_found() -> None:
    case = parse_case("```sh\npartc opt a.partc\n```\n```file b/c.txt\n```\n```file a.partc\n```\n")
    assert case.unused_files() == ["b/c.txt"]


def test_a_file_in_a_named_folder_is_used() -> None:
    assert parse_case("```sh\npartc lower b\n```\n```file b/c.txt\n```\n").unused_files() == []


def test_a_pipe_feeds_the_next_command(tmp_path: Path) -> None:
    case = parse_case("```sh\ncat a.txt | partc opt - -p canonicalize\n```\n```file a.txt\nnot IR\n```\n")
    outcome = run_case(case, tmp_path)
    assert outcome.exit == 1
    assert "<stdin>:1:1" in outcome.stderr


def test_commands_stop_at_the_first_that_fails(tmp_path: Path) -> None:
    outcome = run_case(parse_case("```sh\npartc nonsense\npartc --version\n```\n"), tmp_path)
    assert (outcome.exit, outcome.stdout) == (2, "")


def test_filters_hide_what_differs(tmp_path: Path) -> None:
    case = parse_case("```sh\npartc --version\n```\n```filter\n\\d+\\.\\d+\\.\\d+ => <version>\n```\n")
    assert isinstance(case, Case)
    assert run_case(case, tmp_path).stdout == "partc <version>\n"


def test_json_is_shown_as_the_paths_that_a_case_names() -> None:
    text = 'before\nplan {"a": {"b": [1, 2]}, "c": 3}\n{\n "a": null\n}\nafter\n'
    assert picked(text, ["a.b.1", "c"]) == ("before\nplan a.b.1 = 2\nplan c = 3\nafter\n")
    assert picked(text, ["a", "d"]) == (
        'before\nplan a = {"b": [1, 2]}\nplan d = missing\na = null\nd = missing\nafter\n'
    )
    assert picked(text, []) == text


def test_a_difference_has_a_line_around_each_change() -> None:
    before, after = "a\nb\nc\nd\n", "a\nb\nx\nd\n"
    assert difference(before, after) == "@@\n b\n-c\n+x\n d\n"
    assert difference(before, before) == ""


def test_a_difference_stays_one_when_a_case_is_rewritten() -> None:
    case = parse_case("```sh\npartc opt a\n```\n```file a\n```\n```diff a\n```\n")
    assert case.with_outcome(Outcome("+b\n", "", 0)).blocks[2:] == (Block("diff", "a", "+b\n"),)
    assert case.with_outcome(Outcome("", "", 0)).blocks[2:] == (Block("diff", "a", ""),)


def test_the_difference_is_from_a_file_that_a_command_wrote(tmp_path: Path) -> None:
    case = parse_case("```sh\ncat a > b\ncat c\n```\n```file a\n1\n```\n```file c\n2\n```\n```diff b\n```\n")
    assert run_case(case, tmp_path).stdout == "@@\n-1\n+2\n"


def test_a_file_of_another_case_is_taken_with_its_edits(tmp_path: Path) -> None:
    (tmp_path / "first.md").write_text("```sh\ncat a\n```\n```file a\none two\n```\n", encoding="utf-8")
    second = parse_case("```sh\ncat a\n```\n```file a from first\ntwo => 2\n```\n")
    assert input_files(second, tmp_path) == {"a": "one 2\n"}
    third = parse_case("```sh\ncat a\n```\n```file a from first\nthree => 3\n```\n")
    with pytest.raises(CaseError, match="nothing matches 'three'"):
        input_files(third, tmp_path)
    with pytest.raises(CaseError, match="a from none"):
        input_files(parse_case("```sh\ncat a\n```\n```file a from none\n```\n"), tmp_path)


def test_a_rule_may_take_away() -> None:
    assert substituted("a b\n", [" b =>"]) == "a\n"
