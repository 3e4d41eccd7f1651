"""The harness itself: what it reads it writes back, and what is wrong with a case it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.case import Block, Case, CaseError, Outcome, parse_case, print_case
from tests.golden.shell import run_case

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
