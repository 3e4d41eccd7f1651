from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.conftest import browser
from tests.serve.server import Server, make_build, serving

__all__ = ["browser"]  # a fixture of this folder, too


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_build(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="session")
def server(build: Path) -> Iterator[Server]:
    with serving(build) as made:
        yield made
