"""Guessed tokens in rings of processes: the tokens are those without, also where a device is killed meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.format.message_parts import Sampling
from partc.format.names import device_folders
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Result
from partc.runtime.client.runners import PYTHON_RUNNER
from tests.e2e.kills import answered
from tests.e2e.test_survive import TARGETS, compiled
from tests.native.compiled import native_runner

pytestmark = [pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(8, whole=True)]

MODEL = """\
model:
  seed: 3
  config: {{model_type: llama, hidden_size: 96, intermediate_size: 160, num_hidden_layers: 3, num_attention_heads: 4,
           num_key_value_heads: 2, vocab_size: 120, max_position_embeddings: 128, tie_word_embeddings: true}}
max_sequence: 96
quantize: {quantize}
"""
DEVICE = """\
source: a
devices:
  a: {target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 5 GB/s, memory: 2 GB, threads: 1}
"""


@pytest.fixture(scope="module", params=TARGETS)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("guesses"), request.param, "one")


def partly(tokens: list[int]) -> list[int]:
    """The answer with every fifth token another one."""
    return [(token + 1) % 120 if at % 5 == 4 else token for at, token in enumerate(tokens)]


@pytest.mark.parametrize("natives", [(), ("phone", "board", "old"), ("board",), ("phone",)])
def test_no_token_depends_on_guesses(build: Path, natives: tuple[str, ...]) -> None:
    native = (str(native_runner()),) if natives else PYTHON_RUNNER
    runners = {folder.name: PYTHON_RUNNER for folder in device_folders(build)} | dict.fromkeys(
        natives, native
    )
    with launch_local(build, runners=runners) as ring, ring.client() as client:
        plain = answered(client, drafts=False)
        (right,) = map(list, plain.tokens)
        assert (plain.drafted, len(set(right)) > 4) == (0, True), "a model that says one thing proves nothing"
        drafted = 0
        for expected in ([], partly(right), right) * 4:
            guessed = answered(client, expected=expected)
            assert list(guessed.tokens[0]) == right
            drafted += guessed.drafted
        assert drafted, "how many leave depends on what pays at the moment"


@pytest.fixture(scope="module", params=["none", "int8", "int4"])
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One device, with code for several tokens in a step."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "model.yaml").write_text(MODEL.format(quantize=request.param))
    (folder / "devices.yaml").write_text(DEVICE)
    assert (
        run(
            [
                "compile",
                str(folder / "model.yaml"),
                "--target",
                str(folder / "devices.yaml"),
                "-o",
                str(folder / "build"),
            ]
        )
        == 0
    )
    return folder / "build"


@pytest.mark.in_turns(3)
@pytest.mark.tvm
@pytest.mark.parametrize("runner", ["python", "native"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_device_alone_takes_several_tokens_in_a_step(alone: Path, runner: str, temperature: float) -> None:
    command = PYTHON_RUNNER if runner == "python" else (str(native_runner()),)
    sampling = Sampling(temperature=temperature, seed=7)
    with launch_local(alone, runners={"a": command}) as ring, ring.client() as client:

        def asked(**options: Any) -> Result:
            return client.generate([5, 6, 7, 8, 9], 80, sampling, ignore_eos=True, **options)

        (right,) = map(list, asked(drafts=False).tokens)
        accepted = 0
        for expected in (partly(right), right, right):
            guessed = asked(expected=expected)
            assert list(guessed.tokens[0]) == right
            accepted += guessed.accepted
            assert len(guessed.timings["a"].table) == 80, "each token has its part of its step"
        assert accepted > 20, "a copy takes several tokens in a step, whatever else the machine does"


@pytest.mark.parametrize(("lost", "at"), [("board", 5), ("old", 11)])
def test_a_killed_device_takes_no_token_with_it(build: Path, lost: str, at: int) -> None:
    """Nobody starts it again: what was guessed is forgotten, and the others go on from what is known."""
    with launch_local(build, restart=False) as ring, ring.client() as client:
        (right,) = map(list, answered(client, drafts=False).tokens)
        count = 0

        def on_token(tokens: object) -> None:
            nonlocal count
            count += 1
            if count == at:
                os.kill(ring.pids[lost], signal.SIGKILL)

        guessed = answered(client, on_token=on_token, expected=partly(right))
        assert list(guessed.tokens[0]) == right
