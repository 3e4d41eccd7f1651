from __future__ import annotations

from pathlib import Path

import pytest

from partc.runtime.client.launch import launch_local
from tests.living.throttle import Throttle
from tests.runtime.bundles import language_model

pytestmark = pytest.mark.ort


def test_a_throttled_device_takes_longer(tmp_path: Path) -> None:
    bundle, throttle = language_model().write(tmp_path / "build"), Throttle(tmp_path / "throttle")
    with launch_local(bundle, env=throttle.env) as ring, ring.client() as client:

        def computed(device: str) -> float:
            timings = client.generate([1, 2], 12, ignore_eos=True).timings[device]
            return float(sum(timings.column("compute_s")[1:]))

        before = computed("b")
        throttle.slow("b", 50.0)
        computed("b")  # the factor is read now and then
        assert computed("b") > 5 * before
        throttle.slow("b", 1.0)
