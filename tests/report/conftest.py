"""A Chromium without a network. Without one these tests skip, but in continuous integration they fail."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium from $CHROMIUM or the path, until the module's last test: playwright's event loop runs as long.

    Tests of commands that need a loop of their own, such as `partc serve`, share the process with it.
    """
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    missing = [] if path else ["no Chromium (apt-get install chromium, or set CHROMIUM to its path)"]
    if importlib.util.find_spec("playwright") is None:
        missing.append("no playwright (pip install playwright)")
    if missing and os.environ.get("CI"):
        pytest.fail(f"browser tests must run in CI: {'; '.join(missing)}", pytrace=False)
    if missing:
        pytest.skip("; ".join(missing))

    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield chromium
        chromium.close()
