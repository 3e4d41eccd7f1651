"""The table of events of a log, and that both runners tell all of it."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from partc.format import native
from partc.format.document import log_tables
from partc.format.logs import BY_NAME, EVENTS, FIELDS, LEVELS, NO_LEVEL, is_written

ROOT = Path(__file__).parents[2]
_PYTHON = re.compile(r'(?:\bLog|\bwrite)\(\s*f?"([a-z-]+)"')
_CPP = re.compile(
    r'(?:Log\{|return \{|Log [a-z_]+\{|with_reason\(|note\(|settings\.log, device, |: )"([a-z-]+)"'
)
_SECRET = ("prompt", "text", "token", "key", "ticket", "ids")
"""Words that no field may be."""


def told_in_python() -> set[str]:
    """Names of events in the sources of the runner."""
    files = [*(ROOT / "partc/runtime/core").rglob("*.py"), *(ROOT / "partc/runtime/shell").glob("*.py")]
    texts = [path.read_text() for path in [*files, ROOT / "partc/runtime/cli.py"]]
    found = {name for text in texts for name in _PYTHON.findall(text)}
    return found | ({"linked"} if 'else "linked", {}' in "".join(texts) else set())


def told_in_cpp() -> set[str]:
    """Names of events in the sources of the native runner."""
    files = [*(ROOT / "native/src/core").rglob("*.cpp"), *(ROOT / "native/src/shell").glob("*.cpp")]
    texts = [path.read_text() for path in [*files, ROOT / "native/src/cli.cpp"]]
    found = {name for text in texts for name in _CPP.findall(text)} & BY_NAME.keys()
    return found | ({"complete"} if '? "complete"' in "".join(texts) else set())


def test_the_table() -> None:
    assert len(BY_NAME) == len(EVENTS)
    for event in EVENTS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", event.name)
        assert event.level in LEVELS
        assert set(event.fields) <= FIELDS.keys()
        assert not set(event.fields) & set(_SECRET)
        used = {name for _, name, _, _ in Formatter().parse(event.sentence) if name}
        assert used <= set(event.fields), event.name
    assert {name for event in EVENTS for name in event.fields} == FIELDS.keys(), "each field is used"


def test_both_runners_tell_every_event() -> None:
    of_runners = {event.name for event in EVENTS if event.where != ("server",)}
    assert told_in_python() == of_runners
    assert told_in_cpp() == of_runners


def test_the_server_tells_the_others() -> None:
    texts = "".join(path.read_text() for path in (ROOT / "partc/serve").glob("*.py"))
    for event in EVENTS:
        if event.where == ("server",):
            name = event.name.replace("ring-lost", "ring-{state}").replace("ring-ended", "ring-{state}")
            assert f'"{name}"' in texts


def test_the_native_runner_has_this_table() -> None:
    header = (ROOT / "native/src/format/logs.gen.hpp").read_text()
    assert header == native.files()["logs.gen.hpp"]
    assert all(f'"{event.sentence}"' in header for event in EVENTS if event.where != ("server",))


def test_the_manual_has_every_event() -> None:
    manual = (ROOT / "docs/logs.md").read_text()
    assert log_tables() in manual
    assert all(f"| `{event.name}` |" in manual for event in EVENTS)


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", {"debug", "info", "warning", "error"}), ("warning", {"warning", "error"}), (NO_LEVEL, set())],
)
def test_levels(level: str, written: set[str]) -> None:
    assert {event.level for event in EVENTS if is_written(event, level)} == written
