"""The ring that `--connect` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from partc.errors import RunError
from partc.runtime.client.launch import launch_local
from partc.runtime.client.reach import reach_ring
from partc.runtime.client.ring_file import told_in_file
from tests.runtime.bundles import language_model


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("reach") / "build")


@pytest.mark.parametrize("insecure", [False, True])
def test_auto_is_the_ring_that_runs(build: Path, insecure: bool) -> None:
    with (
        launch_local(build, insecure=insecure) as ring,
        told_in_file(build, ring.source, insecure=insecure),
        reach_ring(build, "auto", insecure=False) as client,
    ):
        assert client.generate([1, 2], 3, ignore_eos=True).tokens


def test_a_local_ring_that_is_gone_has_ended(build: Path) -> None:
    """Nobody waits for `--linger`, as for a network that may heal."""
    with launch_local(build) as ring, told_in_file(build, ring.source, insecure=False):
        client = reach_ring(build, "auto", insecure=False)
    with client, pytest.raises(RunError, match="the ring has ended") as caught:
        client.listen(5.0)
        client.listen(5.0)
    assert caught.value.where == str(build)


def test_without_a_ring_the_address_is_that_in_devices_yaml(build: Path) -> None:
    with pytest.raises(RunError, match="the address of the source is not known"):
        reach_ring(build, "auto", insecure=False)
