"""Kernels call no function of the C library in single precision: those of two libraries differ in the last bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.format.message_parts import Sampling
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Tokens
from tests.native.compiled import native_runner

pytestmark = [pytest.mark.hf, pytest.mark.tvm]
_SINGLE = {"expf", "exp2f", "logf", "log1pf", "sinf", "cosf", "tanf", "powf", "tanhf", "erff"}
_LLAMA = (
    "model_type: llama, vocab_size: 300, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2,"
    " num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128"
)
_MODELS = {
    "llama": _LLAMA,
    "gemma2": _LLAMA.replace("llama", "gemma2") + ", head_dim: 64",
    "mamba": "model_type: mamba, vocab_size: 120, hidden_size: 32, num_hidden_layers: 2, state_size: 8",
}
_DEVICE = "{target: tvm, arch: host, flops: 8 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 200 MB, threads: 1}"


def _compiled(config: str, folder: Path, rest: str = "") -> Path:
    (folder / "model.yaml").write_text(f"model: {{config: {{{config}}}, seed: 4}}\nmax_sequence: 64\n{rest}")
    (folder / "devices.yaml").write_text(f"source: a\ndevices:\n  a: {_DEVICE}\n")
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("name", _MODELS)
def test_no_library_asks_for_a_function_in_single_precision(name: str, tmp_path: Path) -> None:
    build = _compiled(_MODELS[name], tmp_path)
    for library in build.glob("devices/*/**/*.so"):
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
        )
        symbols = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
        assert symbols.isdisjoint(_SINGLE)


@pytest.mark.in_turns(7)
@pytest.mark.native
def test_both_runners_give_the_same_probabilities(tmp_path: Path) -> None:
    """In int4, where activations are rounded, one bit of a rotation would change whole steps."""
    build = _compiled(_LLAMA, tmp_path, "quantize: int4\n")
    found = []
    for runners in ({"runner": "python"}, {"runners": {"a": [str(native_runner())]}}):
        with launch_local(build, **runners) as ring, ring.client() as client:
            told: list[Tokens] = []
            prompt, wanted = [[1, 5, 9, 33, 7]], Sampling(likely=3)
            client.submit(
                prompt, max_new_tokens=40, sampling=wanted, ignore_eos=True, on_token=told.append
            ).result()
            found.append(told)
    assert len(found[0]) == 40
    assert found[0] == found[1]
