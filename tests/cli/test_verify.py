"""`partc verify` of a quantised build on the command line: what is printed, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.cli.verdict import print_report
from partc.verifier.report import ORIGINAL, UNCUT, Case, Cost, CutError, Report

COST = Cost("int4", "int8", "none", 64, "book.txt", 512, 0.98765, 0.0123456, 7.65432, 7.5)
REPORT = Report(
    cases=[Case("prompt of 7 tokens", 64, 64, 2.5e-3)],
    cuts=[CutError("model.layers.11.very.long.name.add", "phone", "board", 1e-3, 17.0)],
    tolerance=2e-2,
    largest_output=12.0,
    against=UNCUT,
    cost=COST,
)


def test_the_cost_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Requests (beside the uncut model)"
    rows = {line.split("  ")[0].strip(): line.split("  ", 1)[1].strip() for line in lines if "  " in line}
    assert rows["precision"] == "weights int4, head int8, embeddings none, block 64"
    assert rows["measured on"] == "book.txt, 512 predictions"
    assert rows["top-1 agreement"] == "98.77%"
    assert rows["KL divergence"] == "0.0123 nats per prediction"
    assert rows["perplexity"] == "7.654, of the original 7.5"
    assert lines[-1] == "tokens identical"


def test_a_note_stands_above_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(replace(REPORT, cost=None, note="devices differ"))
    assert capsys.readouterr().out.endswith("note: devices differ\ntokens identical\n")


def test_the_json_has_the_figures() -> None:
    found = json.loads(json.dumps(REPORT.to_json()))
    assert found["against"] == "the uncut model"
    figures = {
        "weights": "int4",
        "head": "int8",
        "embeddings": "none",
        "tokens": 512,
        "top1_agreement": 0.98765,
        "kl_nats": 0.0123456,
        "perplexity": 7.65432,
        "perplexity_full": 7.5,
    }
    assert figures.items() <= found["quantization"].items()
    plain = replace(REPORT, against=ORIGINAL, cost=None).to_json()
    assert {"against", "quantization", "note"}.isdisjoint(plain)


def test_errors_at_cuts_count() -> None:
    cut = REPORT.cuts[0]
    assert REPORT.equal
    assert not replace(REPORT, cuts=[replace(cut, max_abs_error=0.5)]).equal
    assert not replace(REPORT, cases=[replace(REPORT.cases[0], identical=63)]).equal


@pytest.fixture
def build(small: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A build of an ONNX graph for devices of target null, not quantised."""
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    capsys.readouterr()
    return small / "build"


@pytest.mark.parametrize(
    ("quantize", "arguments", "code", "message"),
    [
        ("none", ["--text", "model.yaml"], 1, "is not quantised: there is no cost to measure"),
        ("none", ["--text", "model.yaml", "--no-cost"], 2, "--text and --no-cost exclude each other"),
        ("none", ["--text-tokens", "0"], 2, "--text-tokens"),
        ("int4", [], 1, "the build is quantised as none, this model as int4"),
    ],
)
def test_mistakes(
    build: Path,
    quantize: str,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("model.yaml").open("a") as file:
        file.write(f"quantize: {quantize}\n")
    assert run(["verify", "build", *arguments]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err


def test_the_log_of_the_ring(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "model.yaml", "--target", "devices.yaml"]) == 0
    run(["verify", "build", "--log-level", "info", "--log-format", "json"])
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert {"complete", "request-ended"} <= {line["event"] for line in lines}
