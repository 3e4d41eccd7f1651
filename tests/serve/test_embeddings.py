"""Embeddings of an encoder: those of transformers, pooled as the checkpoint says."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from partc.cli.main import run
from partc.errors import RunError
from partc.serve.pooling import Pooling, read_pooling
from tests.serve.server import Server, serving, tokenizer_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.serve

TEXTS = ["abc", "a dig", "kill a beagle"]
POOLING = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
DEVICE = "target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 1 GB"
LINKS = "links:\n  default: {bandwidth: 4 Gbit/s, latency: 0.2 ms}\n"


def _checkpoint(folder: Path) -> Any:
    """A tiny encoder with random weights, in the form that sentence-transformers reads."""
    from transformers import BertConfig, BertModel

    fields = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    network = BertModel(BertConfig(vocab_size=17, max_position_embeddings=32, **fields)).eval()
    network.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(POOLING))
    return network


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Any]]:
    import torch

    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("encoder")
    network = _checkpoint(folder / "tiny")
    (folder / "template.jinja").write_text("")
    (folder / "model.yaml").write_text(
        f"model: {folder / 'tiny'}\ntask: feature-extraction\nmax_sequence: 32\n"
    )
    devices = "".join(f"  {name}: {{{DEVICE}}}\n" for name in ("a", "b"))
    (folder / "devices.yaml").write_text(f"source: a\ndevices:\n{devices}{LINKS}")
    build = folder / "build"
    arguments = [
        "compile",
        str(folder / "model.yaml"),
        "--target",
        str(folder / "devices.yaml"),
        "-o",
        str(build),
    ]
    assert run([*arguments, "--strategy", "even"]) == 0
    with serving(build) as made:
        yield made, network


def _expected(network: Any, text: str) -> Any:
    """The normalised mean of the tokens' vectors."""
    import torch
    from tokenizers import Tokenizer

    ids = Tokenizer.from_str(tokenizer_json()).encode(text).ids
    with torch.no_grad():
        mean = network(torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
    return (mean / mean.norm()).numpy()


@pytest.mark.in_turns(2)
@pytest.mark.hf
@pytest.mark.ort
def test_vectors_are_those_of_transformers(encoder: tuple[Server, Any]) -> None:
    server, network = encoder
    body = {"model": "tiny", "input": TEXTS}
    status, answer = server.post("/v1/embeddings", body)
    assert (status, answer["object"], answer["model"]) == (200, "list", "tiny")
    assert [entry["index"] for entry in answer["data"]] == [0, 1, 2]
    vectors = np.array([entry["embedding"] for entry in answer["data"]], np.float32)
    np.testing.assert_allclose(vectors, [_expected(network, text) for text in TEXTS], atol=1e-5)
    tokens = sum(map(len, TEXTS))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    packed = server.post("/v1/embeddings", {**body, "encoding_format": "base64"})[1]["data"]
    told = [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in packed]
    assert (np.array(told) == vectors).all()
    ids = server.post("/v1/embeddings", {"input": [4, 5, 6]})[1]["data"]  # there is one model
    assert [entry["embedding"] for entry in ids] == [vectors[0].tolist()]


@pytest.mark.hf
@pytest.mark.ort
def test_a_client_of_openai_gets_them(encoder: tuple[Server, Any]) -> None:
    if importlib.util.find_spec("openai") is None:
        pytest.skip("no openai")
    import openai

    server, network = encoder
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model="tiny", input="abc")
        np.testing.assert_allclose(answer.data[0].embedding, _expected(network, "abc"), atol=1e-5)
        with pytest.raises(openai.NotFoundError, match="use /v1/embeddings"):
            client.completions.create(model="tiny", prompt="abc")


@pytest.mark.hf
@pytest.mark.ort
@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": []}, "input", None),
        ({"input": ""}, "input", None),
        ({"input": "a" * 33}, "input", "context_length_exceeded"),
        ({"input": [17]}, "input", None),
        ({"input": ["a", 1]}, "input", None),
        ({"dimensions": 8}, "dimensions", "unsupported_parameter"),
        ({"encoding_format": "int8"}, "encoding_format", None),
        ({"user_": "a"}, "user_", "unknown_parameter"),
    ],
)
def test_embeddings_that_are_refused(
    encoder: tuple[Server, Any], body: dict[str, Any], param: str, code: str | None
) -> None:
    status, answer = encoder[0].post("/v1/embeddings", {"model": "tiny", "input": "abc", **body})
    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, param, code)


HIDDEN = np.array([[1, -2], [3, 4], [-5, 6]], np.float32)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode_cls_token": True}, [1, -2]),
        ({"pooling_mode": "lasttoken"}, [-5, 6]),
        ({"pooling_mode_max_tokens": True}, [3, 6]),
        ({"pooling_mode_mean_tokens": True}, [-1 / 3, 8 / 3]),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, [-1 / 3**0.5, 8 / 3**0.5]),
        ({"pooling_mode_weightedmean_tokens": True}, [(1 + 6 - 15) / 6, (-2 + 8 + 18) / 6]),
        ({"pooling_mode": ["cls", "max"]}, [1, -2, 3, 6]),
    ],
)
def test_poolings(tmp_path: Path, config: dict[str, Any], expected: list[float]) -> None:
    assert read_pooling(tmp_path) == Pooling(("mean",), normalises=False)
    (tmp_path / "modules.json").write_text(json.dumps(MODULES[:2]))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(read_pooling(tmp_path).vector(HIDDEN), expected, rtol=1e-6)
    (tmp_path / "modules.json").write_text(json.dumps(MODULES))
    made = read_pooling(tmp_path).vector(HIDDEN)
    np.testing.assert_allclose(made, np.array(expected) / np.linalg.norm(expected), rtol=1e-6)


def test_what_pools_otherwise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    path.write_text(json.dumps([*MODULES, {"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(RunError, match="Dense"):
        read_pooling(tmp_path)
    path.write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        read_pooling(tmp_path)
    path.write_text(json.dumps(MODULES))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "best"}')
    with pytest.raises(RunError, match="best"):
        read_pooling(tmp_path)


@pytest.mark.browser
def test_the_page_shows_vectors(encoder: tuple[Server, Any], browser: Browser) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(f"{encoder[0].url}/")
    expect(page.locator("#what")).to_contain_text("Texts, one a line")
    page.fill("#text", "abc\na dig")
    page.click("#send")
    expect(page.locator(".turn.assistant")).to_contain_text("16 numbers")
    expect(page.locator(".turn.assistant")).to_contain_text("cosine to the first: ")
    assert not page.locator("#drawing").is_visible() and not page.locator("#stop").is_visible()
    page.close()
