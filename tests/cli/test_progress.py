"""The progress of long work: its amount, its rate and the time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from partc.cli.progress import Bar, amount


@pytest.mark.parametrize(
    ("done", "speed", "text"),
    [
        (0, None, "0 bytes of 3.8 GB"),
        (1_800_000_000, 2e8, "1.8 GB of 3.8 GB, 200.0 MB/s, 10 s left"),
        (1_800_000_000, 1e7, "1.8 GB of 3.8 GB, 10.0 MB/s, 3 min 20 s left"),
    ],
)
def test_amounts(done: int, speed: float | None, text: str) -> None:
    assert amount(done, 3_800_000_000, speed) == text


def test_bytes_are_told_from_items() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    columns = TextColumn("{task.description}"), TextColumn("<{task.fields[amount]}>")
    with Progress(*columns, console=console, auto_refresh=False) as display:
        bar = Bar(display)
        for step in ("import", "emit-bundle"):  # the tasks of the first are gone when the second runs
            bar.start(step)
            bar.update("trace model", 1, 3)
            bar.update("write weights", 5_000_000, 10_000_000)
        shown = {task.description.strip(): task.fields["amount"] for task in display.tasks}
    assert shown["trace model"] == shown["emit-bundle"] == ""
    assert shown["write weights"].startswith("5.0 MB of 10.0 MB")


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(None)
    bar.start("emit-bundle")
    bar.update("write weights", 1, 2)
    assert capsys.readouterr() == ("", "")
