"""A malicious member before native/src/core: messages outside their right bring what they bring in Python."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.format.messages.rights import RIGHTS
from partc.runtime.core.events import Received
from tests.format.test_messages import structs_of
from tests.native.device import NativeDevice
from tests.native.formats import started
from tests.runtime.core.malice import Case, standing, wrong_cases
from tests.runtime.core.test_rights import UNTIMELY

pytestmark = pytest.mark.native

CASES = list(wrong_cases())


@pytest.fixture(scope="module")
def core(built: Path) -> Iterator[subprocess.Popen[bytes]]:
    with started(built / "core") as process:
        yield process


@pytest.mark.parametrize("kind", RIGHTS, ids=lambda kind: kind.__name__.lower())
def test_messages_outside_their_right(kind: type, core: subprocess.Popen[bytes]) -> None:
    """One device takes them all, and its next answer is that of a device that took none."""

    @settings(max_examples=3, deadline=None, derandomize=True)
    @given(data=st.data())
    def check(case: Case, data: st.DataObject) -> None:
        native, python = standing(case.receiver, partial(NativeDevice, core)), standing(case.receiver)
        came = Received(case.origin, None, data.draw(structs_of(kind)), [memoryview(bytes(8))])
        found = repr(native.on(came, 1.0)).replace("frames=[]", "frames=()")
        assert found == repr(python.on(came, 1.0))

    for case in (case for case in CASES if case.kind is kind):
        check(case)


@pytest.mark.parametrize("case", UNTIMELY, ids=lambda case: type(case[2]).__name__.lower())
def test_messages_at_the_wrong_time(case: tuple, core: subprocess.Popen[bytes]) -> None:  # type: ignore[type-arg]
    receiver, origin, message = case
    device = standing(receiver, partial(NativeDevice, core))
    assert device.on(Received(origin, None, message, []), 1.0) == []
