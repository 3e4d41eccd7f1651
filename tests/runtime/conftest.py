from __future__ import annotations

import pytest

from tests.native.compiled import native_runner
from tests.runtime.runners import NATIVE, PYTHON, Runners, made


@pytest.fixture(scope="module", params=[PYTHON, NATIVE])
def runners(request: pytest.FixtureRequest) -> Runners:
    """Tests that take this hold for both runners, and with `indirect` for rings of both."""
    return made(request.param, native_runner)
