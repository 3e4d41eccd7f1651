"""Every file in golden/protocol is a trace of one device: events in, commands out."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from partc.runtime.core.device.execution import Execution
from tests.golden.shell import ROOT
from tests.golden.trace import play
from tests.golden.trace_messages import KINDS, print_message, read_message
from tests.golden.trace_setting import Setting, parse_setting
from tests.golden.trace_values import TraceError, parse_call

PROTOCOL = ROOT / "golden" / "protocol"
_BLOCK = re.compile(
    r"^```(?P<kind>device|placement|trace)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_DEVICE = "ring a b c\nprefill:\n  recv h from a\n  run body (h) -> (m)\n  send m to c\n"
_HINT = "run `pytest tests/golden --update-golden`, then read the change"


def opened(text: str) -> tuple[Setting, re.Match[str]]:
    """The device of a case, and the block of its trace.

    Raises:
        TraceError: it is no case.
    """
    blocks = {match["kind"]: match for match in _BLOCK.finditer(text)}
    if blocks.keys() - {"placement"} != {"device", "trace"}:
        raise TraceError("a case has one block `device NAME` and one block `trace`")
    others = {match["name"]: match["text"] for match in _BLOCK.finditer(text) if match["kind"] == "placement"}
    return parse_setting(blocks["device"]["name"], blocks["device"]["text"], others), blocks["trace"]


def played(text: str) -> str:
    """The case with the commands that really follow.

    Raises:
        TraceError: it is no case.
    """
    setting, trace = opened(text)
    return text[: trace.start("text")] + play(setting, trace["text"]) + text[trace.end("text") :]


@pytest.mark.parametrize("path", sorted(PROTOCOL.glob("*.md")), ids=lambda path: path.stem)
def test_trace(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    found = played(text)
    if request.config.getoption("--update-golden"):
        path.write_text(found, encoding="utf-8")
        return
    lines = difflib.unified_diff(text.splitlines(), found.splitlines(), "expected", "actual", lineterm="")
    if difference := "\n".join(lines):
        pytest.fail(f"{difference}\nIf the new commands are right: {_HINT}.", pytrace=False)


@pytest.mark.parametrize("path", sorted(PROTOCOL.glob("*.md")), ids=lambda path: path.stem)
def test_messages_are_read_as_they_are_written(path: Path) -> None:
    setting, trace = opened(path.read_text(encoding="utf-8"))
    found = re.findall(r"(from|->) (@?\w+'?)(?: as \w+)?: (\w+\([^#\n]*\))", trace["text"])
    for way, origin, text in found:
        sender = setting.role.device if way == "->" else origin.strip("@'")
        printed = print_message(*read_message(parse_call(text), setting, sender), setting, sender)
        assert printed == text


def test_every_message_of_a_ring_is_in_a_trace() -> None:
    traces = "".join(path.read_text(encoding="utf-8") for path in PROTOCOL.glob("*.md"))
    found = set(re.findall(r"(?:from|->) @?\w+'?(?: as \w+)?: (\w+)\(", traces))
    assert KINDS.keys() - found == {"measure", "measured", "join", "joined"}, "none of these is for a ring"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.0 sleeps", "is no event"),
        ("1.0 tick", "no tick is due"),
        ("1.0 from @a: hallo()", "is no kind of message"),
        ("1.0 from @a: hello(name=", "does not end with a bracket"),
        ("1.0 from @a: hello(epoch=[1)", "missing at the end"),
        ("1.0 from @a: close(request=none)", "Expected `int`"),
        ("1.0 computed", "nothing is computed"),
    ],
)
def test_a_line_that_is_none_is_refused(line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        play(parse_setting("b", _DEVICE), line)


def test_a_changed_core_fails_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that come twice under two numbers: only a trace can bring them."""
    text = (PROTOCOL / "values_twice.md").read_text(encoding="utf-8")
    assert played(text) == text
    monkeypatch.setattr(
        Execution, "_came", property(lambda self: set(), lambda self, value: None), raising=False
    )
    assert played(text) != text
