"""Every command with a model of every task: it does its work, or says in a sentence why it cannot.

| command | text | text-to-text | speech | picture, sound in text | classifier, encoder | pictures | graph |
| --- | --- | --- | --- | --- | --- | --- | --- |
| lower, plan, compile, keys | ok | ok | ok | ok | ok | ok | ok |
| simulate, report, deploy, move --dry-run | ok | ok | ok | ok | ok | ok | ok |
| run, verify, profile | ok | ok | ok | ok | ok | ok | ok |
| watch --once, move (of a ring that runs) | ok | ok | ok | ok | ok | ok | ok |
| `import partc` | ok | ok | ok | ok | ok | ok | ok |
| serve | (2) | (2) | (1) | (2) | (1), (2) | (1) | (1) |

(1) Refused in a sentence, `REFUSED`: speech, classifiers, pictures and graphs. (2) Served; tests/serve has these.
Commands that start processes are in the tier `slow`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import partc
from partc.cli.main import run
from partc.errors import RunError
from partc.format.placement import stages_of
from partc.format.role import source_role
from partc.format.tasks import INPUT_IDS
from partc.planner.model.plan_file import PLAN_FILE, read_plan
from partc.planner.model.stages import devices_of
from partc.planner.simulate.build import read_build, workflow
from partc.planner.simulate.case import read_case, simulate
from partc.planner.simulate.demand import Load
from partc.runtime.client.launch import launch_local
from tests.e2e.every_task import GENERATING, KEEPING, TASKS, Made, inputs_of, make
from tests.families.ring import DirectRing

pytestmark = [
    pytest.mark.hf,
    pytest.mark.ort,
    pytest.mark.filterwarnings("ignore:At least one mel filter has all zero values"),
]

WRONG = re.compile(r"bug of partc|Traceback|compile again|do not belong together|nothing is balanced")
"""No command says this of a build that has just been compiled."""
COUNT = 10
"""Tokens of an answer."""
REFUSED = "this model reads no text that it answers or embeds"

Of = Callable[[str], Made]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Of:
    """The build of a task, compiled when it is first asked for."""
    folder, found = tmp_path_factory.mktemp("tasks"), dict[str, Made]()

    def of(task: str) -> Made:
        if task not in found:
            found[task] = make(task, folder / task)
        return found[task]

    return of


def commands_without_processes(made: Made) -> dict[str, list[str]]:
    """Command → its arguments."""
    model, build = str(made.folder / "model.yaml"), str(made.build)
    indices, other = made.movable[0]
    return {
        "lower": [model],
        "plan": [model, "--target", str(made.folder / "devices.yaml")],
        "simulate": [build],
        "report": [build],
        "move": [build, "--submodules", f"{indices[0]}-{indices[-1]}", "--to", other, "--dry-run"],
        "deploy": [build, "--to", "systemd"],
        "keys": [build],
    }


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("task", TASKS)
def test_commands_without_processes(made: Of, task: str, capsys: Capture) -> None:
    for command, arguments in commands_without_processes(made(task)).items():
        code = run([command, *arguments])
        told = capsys.readouterr()
        assert code == 0, f"{command}: {told.err}"
        assert not WRONG.search(told.err), f"{command}: {told.err}"


@pytest.mark.in_turns(5)
@pytest.mark.parametrize("task", TASKS)
def test_programs_of_a_build_take_as_long_as_its_plan(made: Of, task: str) -> None:
    """The simulator follows the build's programs, in which pieces that run once are calls of their own."""
    plan = made(task).build / PLAN_FILE
    case = read_case(read_plan(plan))
    load = Load(1, case.tokens, "sequential", 1)
    (planned,), (built,) = (
        simulate(workflow(case, build), load).token_s for build in (None, read_build(made(task).build))
    )
    # A plan of a model with pictures prices a node of its first step, less than a microsecond, in each step.
    np.testing.assert_allclose(built, planned, rtol=1e-3 if task.endswith("-in-text") else 1e-9)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("task", TASKS)
def test_every_placement_of_the_pieces_is_written_as_the_compiler_does(made: Of, task: str) -> None:
    artifacts = made(task).artifacts
    assert artifacts.place(artifacts.stages) == artifacts.compiled


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("task", KEEPING)
def test_moves_of_a_request_that_keeps_what_it_read(made: Of, task: str) -> None:
    """It begins again where what it kept cannot travel, and has the tokens of an undisturbed ring."""
    found = made(task)
    artifacts, given = found.artifacts, inputs_of(found)
    expected = DirectRing(found.build).generate_from([given], COUNT)[0][0]
    other = {name: array[..., ::-1].copy() for name, array in given.items()}
    assert DirectRing(found.build).generate_from([other], COUNT)[0][0] != expected, "the source is read"
    for indices, device in found.movable:
        names = devices_of(artifacts.stages)
        placement = artifacts.place(stages_of([device if j in indices else n for j, n in enumerate(names)]))
        assert placement.programs != artifacts.compiled.programs
        assert DirectRing(found.build).moved(given, COUNT, placement, behind=4) == expected


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_commands_that_start_processes(made: Of, task: str, tmp_path: Path, capsys: Capture) -> None:
    found, build = made(task), str(made(task).build)
    np.savez(tmp_path / "inputs.npz", **inputs_of(found))  # type: ignore[arg-type]
    by_tokens = source_role(found.build).takes_tokens
    asked = ["--token-ids", "5,6,7,8,9"] if by_tokens else ["--input", str(tmp_path / "inputs.npz")]
    target = ["--target", str(found.folder / "devices.yaml"), "--quick", "-o", str(tmp_path / "profile")]
    for arguments in (
        ["run", build, *asked, *(["--tokens", "6"] if task in GENERATING else []), "--runner", "python"],
        ["verify", build],
        ["profile", str(found.folder / "model.yaml"), *target],
    ):
        code = run(arguments)
        told = capsys.readouterr()
        assert code == 0, f"{arguments[0]}: {told.err}"
        assert not WRONG.search(told.err), f"{arguments[0]}: {told.err}"


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("task", TASKS)
def test_from_python(made: Of, task: str) -> None:
    build, given = made(task).build, inputs_of(made(task))
    expected = DirectRing(build).generate_from([given], COUNT)[0][0] if task in GENERATING else None
    ids = given.pop(INPUT_IDS, None)
    prompt = None if ids is None else ids[0].tolist()
    with partc.Ring(build, runner="python", balance=False) as ring:
        if task in GENERATING:
            assert ring.generate(prompt, COUNT, inputs=given, ignore_eos=True).tokens == expected
        else:
            outputs = ring.run(given) if prompt is None else ring.encode(prompt)
            assert set(outputs) == set(ring.build.roles[ring.build.source].outputs)
            with pytest.raises(RunError, match="does not generate"):
                ring.generate(prompt, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_commands_beside_a_ring(made: Of, task: str, tmp_path: Path, capsys: Capture) -> None:
    build = shutil.copytree(made(task).build, tmp_path / "build")
    indices, other = made(task).movable[0]
    span = f"{indices[0]}-{indices[-1]}"
    with launch_local(build) as ring:
        for arguments in (
            ["watch", str(build), "--once", "--connect", ring.source],
            ["move", str(build), "--submodules", span, "--to", other, "--connect", ring.source],
        ):
            code = run(arguments)
            told = capsys.readouterr()
            assert code == 0, f"{arguments[0]}: {told.err}"
            assert not WRONG.search(told.err), f"{arguments[0]}: {told.err}"


@pytest.mark.parametrize("task", ["speech", "classifier", "pictures", "graph"])
def test_what_is_not_served(made: Of, task: str, capsys: Capture) -> None:
    assert run(["serve", str(made(task).build), "--port", "0"]) == 1
    assert REFUSED in capsys.readouterr().err
