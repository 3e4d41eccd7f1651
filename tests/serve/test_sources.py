"""Answers of an encoder-decoder whose source is lost in the middle: they begin again with the tokens that they had."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.format.names import BUILD_FILE, RUNNER_FILE
from tests.runtime.bundles import reseal
from tests.serve.server import Server, await_state, events, pieces, serving

pytestmark = [pytest.mark.serve, pytest.mark.hf, pytest.mark.ort, pytest.mark.in_turns(2, whole=True)]

VOCABULARY = 97
SOURCE = [20, 21, 22, 23, 24]
TOKENS = 150
KNOWN = 10
"""Tokens that have come when the source dies, at least."""
DEVICES = """\
source: a
devices:
  a: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 1 GB}
  b: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 1 GB}
links:
  default: {bandwidth: 1 Gbit/s, latency: 0.1 ms}
"""
DRAWS = [{"temperature": 0}, {"temperature": 1, "seed": 5}]


def _tokenizer() -> str:
    """A token a character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({chr(33 + token): token for token in range(VOCABULARY)}, unk_token="!"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    return str(made.to_str())


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 with random weights that never ends by itself; it reads at most 16 tokens."""
    from tests.families.sources import save_family

    folder = tmp_path_factory.mktemp("sources")
    save_family("t5", folder / "t5", 1)
    (folder / "t5" / "tokenizer.json").write_text(_tokenizer())
    (folder / "template.jinja").write_text("{{ messages[0].content }}")
    sizes = "max_source: 16\nmax_sequence: 200\nmax_requests: 2\n"
    (folder / "model.yaml").write_text(f"model: {folder / 't5'}\ntask: text2text-generation\n{sizes}")
    (folder / "devices.yaml").write_text(DEVICES)
    build = folder / "build"
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml"), "-o", str(build)]
    assert run(["compile", *files, "--strategy", "even"]) == 0
    for place in sorted((build / "devices").iterdir()):
        model = json.loads((place / BUILD_FILE).read_text())["model"]
        reseal(place / BUILD_FILE, model={**model, "eos_token_ids": []})
    return build


@pytest.fixture(scope="module")
def server(build: Path) -> Iterator[Server]:
    with serving(build) as made:
        yield made


@pytest.mark.parametrize("draw", DRAWS, ids=["greedy", "seed"])
def test_the_text_is_that_of_an_undisturbed_answer(server: Server, draw: dict[str, Any]) -> None:
    _check_lost_source(server, draw)


@pytest.mark.native
def test_the_text_is_that_of_an_undisturbed_answer_by_native_runners(build: Path) -> None:
    from tests.native.compiled import native_runner

    native = Path(shutil.copytree(build, build.parent / "native"))
    for place in (native / "devices").iterdir():
        shutil.copy2(native_runner(), place / RUNNER_FILE)
    with serving(native, "--runner", "native") as server:
        for draw in DRAWS:
            _check_lost_source(server, draw)


def test_another_ring_gives_the_text_of_the_first(build: Path) -> None:
    other = Path(shutil.copytree(build, build.parent / "other"))
    with serving(build, str(other), ready=False) as server:
        for _ in "12":
            await_state(server.process, "ready")
        for draw in DRAWS:
            _check_lost_source(server, draw, [build, other])


def _check_lost_source(server: Server, draw: dict[str, Any], builds: list[Path] | None = None) -> None:
    """The source's runner is killed while it answers; text and usage are those of an undisturbed answer."""
    body = {"prompt": SOURCE, "max_tokens": TOKENS, **draw}
    expected = _ask(server, body)
    another = _ask(server, {**body, "prompt": SOURCE[::-1]})
    assert another["choices"] != expected["choices"], "the source decides"
    again = server.metric("partc_begun_again_total")
    streamed = []
    for line in server.lines(
        "/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}}
    ):
        streamed.append(line)
        if len(streamed) == 2 * KNOWN:  # each event has an empty line behind it
            _lose(server, again, builds)
    told = events("\n".join(streamed))
    assert server.metric("partc_begun_again_total") == again + 1
    assert pieces(told) == expected["choices"][0]["text"]
    assert told[-2]["usage"] == expected["usage"]
    assert expected["usage"]["prompt_tokens"] == len(SOURCE)
    assert expected["usage"]["completion_tokens"] == TOKENS


def _lose(server: Server, again: float, builds: list[Path] | None) -> None:
    """Kill the source of the ring that has the request."""
    rings: list[Path | None] = [*builds] if builds else [None]
    for build in rings:
        os.kill(server.runner("a", build), signal.SIGKILL)
        await_state(server.process, "lost")
        for _ in range(10):  # the loss is told before the requests of the ring begin again
            if server.metric("partc_begun_again_total") > again:
                return
            time.sleep(0.02)


def _ask(server: Server, body: dict[str, Any]) -> Any:
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer
