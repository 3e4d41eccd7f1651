"""run and verify on real processes: the null engine makes up numbers, but everything around it is real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from partc.cli.main import run
from tests.runtime.test_faults import children

pytestmark = pytest.mark.hf
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def build(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build of two devices and a request for it."""
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    np.savez("inputs.npz", x=np.ones((2, 64), np.float32))
    capsys.readouterr()
    return small / "build"


def test_tensors_in_tensors_out(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "build", "--input", "inputs.npz", "--output", "outputs.npz"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out == "h5: float32[2, 64]\n"
    with np.load("outputs.npz") as outputs:
        assert outputs["h5"].shape == (2, 64)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--input", "missing.npz"), 1, "missing.npz"),
        (("--input", "inputs.npz", "--output", "no/such/folder.npz"), 1, "--output"),
        (("--prompt", "Once"), 1, "tensors"),
    ],
)
def test_a_mistake_leaves_no_runner(
    build: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    """Requests are looked at while the runners load: these end, and what is said is about the mistake."""
    before = children()
    assert run(["run", "build", *words]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert "the runner of" not in shown.err
    assert shown.out == ""
    assert children() == before


def test_runners_start_before_what_a_client_needs_is_imported(build: Path) -> None:
    """Else they would wait for it: the imports of numpy, zmq and others take as long as some models."""
    code = """
import sys
from partc.cli.main import run
from partc.runtime.client.launch import LocalRing
start = LocalRing.start

def look(ring):
    print([name for name in ("numpy", "zmq", "msgspec", "asyncio", "rich", "tokenizers") if name in sys.modules])
    start(ring)

LocalRing.start = look
sys.exit(run(["run", "build", "--input", "inputs.npz"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.splitlines()[0] == "[]"


def test_results_as_json(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "build", "--input", "inputs.npz", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"labels", "requests"}
    (request,) = answer["requests"]
    fields = {"prompts", "tokens", "texts", "finish", "outputs", "elapsed_s"}
    assert set(request) == fields
    assert np.shape(request["outputs"]["h5"]) == (2, 64)


def test_timing_goes_to_stderr(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "build", "--input", "inputs.npz", "--json", "--timing", "--insecure"]) == 0
    shown = capsys.readouterr()
    (request,) = json.loads(shown.out)["requests"]
    assert set(request["timings"]) == {path.name for path in (build / "devices").iterdir()}
    for columns in request["timings"].values():
        counts = [columns[name] for name in ("step", "sent_bytes", "received_bytes", "epoch")]
        assert all(isinstance(count, int) for column in counts for count in column)
    assert "Computing" in shown.err
    assert "Waiting" in shown.err
    assert max(map(len, shown.err.splitlines())) <= 80


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to run"),
        (["--prompt", "Once"], 1, "takes tensors, not prompts"),
        (["--token-ids", "1"], 1, "takes tensors, not prompts"),
        (["--input", "nowhere.npz"], 1, "no such file"),
        (["--input", "model.yaml"], 1, "not an .npz file"),
        (["--input", "inputs.npz", "--output", "nodir/x.npz"], 1, "there is no folder nodir"),
        (["--input", "inputs.npz", "--output", "build"], 1, "this is a folder, not a file"),
        (["--input", "inputs.npz", "--top-p", "2"], 1, "out of range"),
        (["--input", "inputs.npz", "--tokens", "0"], 2, "--tokens"),
        (["--input", "inputs.npz", "--connect", "auto"], 1, "address of the source is not known"),
        (["--input", "inputs.npz", "--connect", "127.0.0.1:1"], 1, "does not answer"),
    ],
)
def test_mistakes(
    build: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "build", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert "Traceback" not in shown.err


def test_verify_names_the_remedy_where_the_original_has_moved(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("model.yaml").rename("moved.yaml")
    assert run(["verify", "build"]) == 1
    assert "hint: if it has moved, name it: partc verify build --model MODEL" in capsys.readouterr().err


def test_verify_explains_its_columns(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["verify", "build"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "error: largest absolute difference; largest: largest absolute value"


def test_pickled_arrays_are_refused(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("bad.npz", x=np.array([{"a": 1}], dtype=object))
    assert run(["run", "build", "--input", "bad.npz"]) == 1
    assert "not an .npz file of plain arrays" in capsys.readouterr().err


def test_a_flipped_byte_is_found(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(build.glob("devices/*/part_1*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert run(["run", "build", "--input", "inputs.npz"]) == 1
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_process_behind(build: Path, number: signal.Signals, code: int) -> None:
    command = [
        sys.executable,
        "-m",
        "partc.cli",
        "run",
        str(build),
        "--input",
        str(build.parent / "inputs.npz"),
    ]
    pipe = subprocess.PIPE
    # Programs that were started in the background of a script ignore SIGINT, and so does what they start.
    process = subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    # The moment that the first runner is there, long before the ring stands.
    while not _runners_of(build) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (code, ""), errors
    assert "Traceback" not in errors
    end = time.monotonic() + 5
    while _runners_of(build) and time.monotonic() < end:
        time.sleep(0.05)
    assert _runners_of(build) == []


def _runners_of(build: Path) -> list[str]:
    lines, text = [], ""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (folder / "cmdline").read_bytes().decode(errors="replace")
        if str(build) in text and "partc.runtime" in text:
            lines.append(text)
    return lines
