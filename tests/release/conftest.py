"""The browser of the tests of reports, for those of the site."""

from __future__ import annotations

from tests.report.conftest import browser

__all__ = ["browser"]
