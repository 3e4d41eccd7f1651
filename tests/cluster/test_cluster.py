"""A fleet on three local nodes of Ray, where it is installed: no answer fails, whatever happens to a ring."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from partc.format.names import BUILD_FILE, PLACEMENT_FILE
from tests.runtime.bundles import reseal
from tests.serve.server import make_build

pytestmark = [pytest.mark.ray, pytest.mark.serve]


def test_no_answer_fails(tmp_path: Path) -> None:
    from tests.bench.fleet import measure

    build = make_build(tmp_path)
    other = Path(shutil.copytree(build, tmp_path / "other"))
    for folder in (other / "devices").iterdir():
        plan_id = json.loads((folder / BUILD_FILE).read_text())["plan_id"][::-1]
        reseal(folder / BUILD_FILE, plan_id=plan_id)
        reseal(folder / PLACEMENT_FILE, plan_id=plan_id)
    found = measure(build, other, clients=2, tokens=60, load_s=8.0)
    for phase in ("quiet", "node killed", "node back", "rolling update", "after it"):
        assert (found[phase]["failed"], found[phase]["why"]) == (0, []), phase
        assert found[phase]["answers"], phase
    assert found["node killed"]["longest_s"] > found["quiet"]["longest_s"]
