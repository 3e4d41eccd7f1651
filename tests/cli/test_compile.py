"""compile and plan from end to end, on the null target."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from partc import frontend
from partc.api.checks import CUT_RULES
from partc.bundle.resume import Earlier, Record
from partc.cli.main import run
from partc.config.model import ModelConfig
from partc.ir.graph import Module
from partc.pipeline.contract import Progress
from partc.pipeline.default import PHASES, default_pipeline
from passes.find_cuts import RULES

pytestmark = pytest.mark.hf
COMPILE = ["compile", "model.yaml", "--target", "devices.yaml"]


def test_compile_writes_a_build_and_says_what_is_in_it(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(COMPILE) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "Stages" in shown.out
    assert "Messages" in shown.out
    assert "predicted" in shown.out
    assert shown.out.endswith("wrote build; next: partc verify build\n")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "\x1b" not in shown.out
    assert not any(line.endswith(" ") for line in shown.out.splitlines())
    plan = json.loads(Path("build/plan.json").read_text())
    used = set(plan["answer"]["assignment"])
    assert {path.name for path in Path("build/devices").iterdir()} == used
    assert len(used) > 1, "96 kB of weights do not fit into one device of 64 kB"


def test_the_summary_as_json(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPILE, "-o", "elsewhere", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    texts = ["value", "value_text", "bound", "bound_text", "gap", "method", "batch"]
    fields = ["output", "objective", *texts, "stages", "messages", "explain", "losses", "moves"]
    assert list(summary) == fields
    assert summary["output"] == "elsewhere"
    assert summary["stages"][0]["device"] == "phone"
    assert sum(stage["weights_bytes"] for stage in summary["stages"]) == 6 * 64 * 64 * 4
    assert summary["gap"] == 0
    assert summary["messages"][-1]["kind"] == "return"
    assert summary["messages"][-1]["to"] == "phone"


def test_plan_json_is_what_compile_writes(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "model.yaml", "--target", "devices.yaml", "--json"]) == 0
    planned = capsys.readouterr().out
    assert run(COMPILE) == 0
    assert planned == Path("build/plan.json").read_text()
    assert {"format", "problem", "answer", "predicted", "overlap"} == set(json.loads(planned))


def test_the_problem_of_a_plan_has_the_same_answer(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "model.yaml", "--target", "devices.yaml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    Path("problem.json").write_text(json.dumps(plan["problem"]))
    assert run(["plan", "--problem", "problem.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == plan["answer"]


def test_plan_writes_nothing(small: Path) -> None:
    before = sorted(small.rglob("*"))
    assert run(["plan", "model.yaml", "--target", "devices.yaml"]) == 0
    assert sorted(small.rglob("*")) == before


@pytest.mark.parametrize("option", [["--strategy", "even"], ["--cut-rule", "eq1"]])
def test_options_reach_their_passes(
    small: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("devices.yaml").write_text(Path("devices.yaml").read_text().replace("64 kB", "1 MB"))
    run([*COMPILE, "--json"])
    default = json.loads(capsys.readouterr().out)
    assert run([*COMPILE, *option, "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert (changed["method"], changed["stages"]) != (default["method"], default["stages"])


def test_passes_replace_the_pipeline(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPILE, "--passes", "canonicalize,infer-sizes", "--print-after", "infer-sizes"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("// after infer-sizes\npartc-ir 1\n")
    assert not Path("build").exists()


def test_fusions_are_left_out_in_the_passes_that_have_them() -> None:
    names = ["gelu", "bias", "rotary-embedding", "bias"]
    steps = default_pipeline(Path("d.yaml"), "even", "eq1", Path("build"), disable=names)
    found = {step.name: vars(step)["disable"] for step in steps if "disable" in vars(step)}
    assert found == {"fuse-operators": "gelu;rotary-embedding", "lower-target": "bias"}


def test_a_list_in_the_wrong_order_is_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPILE, "--passes", "canonicalize,find-cuts"]) == 1
    assert "hint: run infer-sizes before it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["-o", "file/x"],
            "file is a file, not a folder\n  where: file/x\n  hint: give another folder with -o",
        ),
        (["-o", "/proc/x"], "cannot write in /proc: nothing can be made there\n  where: /proc/x\n"),
        (["--dump-dir", "file"], "this is a file, not a folder\n  where: file\n"),
        (["--dump-dir", "/proc/x"], "where: /proc/x\n  hint: give another folder with --dump-dir"),
        (["--cut-rule", "eq2"], "unknown cut rule 'eq2'"),
        (["--passes", "find-cuts{rule=eq2}"], "unknown cut rule 'eq2'"),
        (["--passes", "canonicalize,partition-graph"], "hint: run form-submodules before it"),
        (["--print-after", "nosuch"], "no such pass runs"),
        (
            ["--disable", "gelu", "--disable", "softmax"],
            "there is no fusion 'softmax'\n  where: --disable",
        ),
    ],
)
def test_mistakes_are_told_before_the_model_is_loaded(
    small: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("partc.cli.load.load_model", lambda *_: pytest.fail("loaded"))
    Path("file").touch()
    before = sorted(small.rglob("*"))
    assert run([*COMPILE, *options]) == 1
    assert message in capsys.readouterr().err
    assert sorted(small.rglob("*")) == before


def test_the_cut_rules_are_those_of_the_pass() -> None:
    assert CUT_RULES == RULES


def test_dumps_are_numbered(small: Path) -> None:
    assert run([*COMPILE, "--dump-dir", "dumps"]) == 0
    names = [path.name for path in sorted(Path("dumps").iterdir())]
    assert names[0] == "00_canonicalize.partc"
    assert names[-1].endswith("_emit-bundle.partc")
    assert [name[:2] for name in names] == [f"{index:02}" for index in range(len(names))]


def test_timing_names_every_pass(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMPILE, "--timing", "--json"]) == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    assert "partition-graph" in shown.err
    assert "total" in shown.err


def test_no_device_fits(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("devices.yaml").write_text(Path("devices.yaml").read_text().replace("64 kB", "10 kB"))
    assert run(COMPILE) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: no plan fits: memory")
    assert not Path("build").exists()


def test_a_folder_of_something_else_stays(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("build").mkdir()
    Path("build/notes.txt").write_text("milk")
    assert run(COMPILE) == 1
    assert "no build of partc's" in capsys.readouterr().err
    assert [path.name for path in Path("build").iterdir()] == ["notes.txt"]


def test_compiling_twice_changes_no_byte(small: Path) -> None:
    assert run(COMPILE) == 0
    first = {path: path.read_bytes() for path in Path("build").rglob("*") if path.is_file()}
    assert run(COMPILE) == 0
    assert {path: path.read_bytes() for path in Path("build").rglob("*") if path.is_file()} == first


def test_keys_are_rotated(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMPILE) == 0
    before = {path: path.read_bytes() for path in Path("build").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(["keys", "build", "--json"]) == 0
    public = json.loads(capsys.readouterr().out)
    after = {path: path.read_bytes() for path in Path("build").rglob("*") if path.is_file()}
    changed = {path for path in after if after[path] != before[path]}
    assert before.keys() == after.keys()
    assert changed == {path for path in after if "keys" in path.parts}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in changed)
    assert set(public) == {"client", "devices"}
    assert set(public["devices"]) == {path.name for path in Path("build/devices").iterdir()}


@pytest.mark.parametrize("command", ["keys", "run", "verify"])
def test_what_is_no_build_is_refused(command: str, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--prompt", "x"] if command == "run" else []
    assert run([command, "nowhere", *options]) == 1
    assert "not a build" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("build", "hint"),
    [
        ("model.yaml", "partc compile model.yaml --target"),
        ("devices.yaml.txt", "give what partc compile wrote"),
        ("builds/a/devices/phone", "give builds/a\n"),
        ("builds", "give one of the builds found: builds/a\n"),
        ("builds/b", "give one of the builds found: builds/a\n"),
    ],
)
def test_the_hint_finds_the_build_that_was_meant(
    small: Path, build: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("builds/a/devices/phone")
    folder.mkdir(parents=True)
    for file in (folder / "build.json", Path("builds/a/plan.json"), Path("devices.yaml.txt")):
        file.touch()
    assert run(["run", build, "--prompt", "x"]) == 1
    assert f"hint: {hint}" in capsys.readouterr().err


def test_no_cache_takes_nothing_over_from_the_build(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    take_over = Earlier.take_over

    def noted(self: Earlier, device: Path, inputs: str, progress: Progress) -> Record | None:
        record = take_over(self, device, inputs, progress)
        if record is not None:
            copied.append(device.name)
        return record

    monkeypatch.setattr(Earlier, "take_over", noted)
    assert run(COMPILE) == run([*COMPILE, "--no-cache"]) == 0
    assert copied == []
    assert run(COMPILE) == 0
    assert copied != []


def test_a_disk_that_is_full_is_named_by_the_build(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("partc.bundle.writer.write_record", refuse)
    assert run([*COMPILE, "-o", "elsewhere"]) == 1
    assert "where: elsewhere\n  hint: make room there" in capsys.readouterr().err


def test_the_line_about_precision_keeps_within_80_columns(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("model.yaml").open("a") as file:
        file.write("quantize: {weights: int4, head: int8, embeddings: none, block: 16}\n")
    for command in (COMPILE, ["plan", *COMPILE[1:]]):
        assert run(command) == 0
        shown = capsys.readouterr().out
        assert "weights: int4" in shown
        assert max(map(len, shown.splitlines())) <= 80


def test_a_pass_with_an_output_of_its_own(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passes = ",".join(name for names in PHASES.values() for name in names)
    assert run([*COMPILE, "--passes", f"{passes}{{output=mine}}"]) == 0
    assert capsys.readouterr().out.endswith("wrote mine; next: partc verify mine\n")
    assert Path("mine/runs/origin.json").exists()
    assert not Path("build").exists()


@pytest.mark.parametrize(
    "command", [["lower", "model.yaml"], ["plan", "model.yaml", "--target", "devices.yaml"]]
)
def test_no_cache_imports_anew(small: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the flag a kept import would do."""
    asked: list[str] = []
    fresh = frontend.load_module

    def kept(config: ModelConfig, *, progress: Progress) -> Module:
        asked.append("kept")
        return fresh(config, progress=progress)

    monkeypatch.setattr("partc.frontend.cache.load_cached", kept)
    for flags in ([], ["--no-cache"]):
        assert run([*command, *flags]) == 0
    assert asked == ["kept"]
