"""Clients that people use: LangChain and `llm` for Python, OpenAI's and Vercel's for JavaScript.

Each is tested where it is installed: `pip install langchain-openai llm`; and `npm install openai ai
@ai-sdk/openai-compatible` in a folder that PARTC_NODE names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.serve.server import MODEL, Server

pytestmark = pytest.mark.serve
SCRIPT = Path(__file__).with_name("clients.mjs")


def _need(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"no {name}")


def _text(server: Server, **fields: Any) -> str:
    """A greedy answer, as `curl` gets it."""
    messages = [{"role": "user", "content": "abc"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 9, "temperature": 0, **fields}
    return str(server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"])


def _quiet(server: Server) -> bool:
    end = time.monotonic() + 20
    while server.metric("partc_requests_in_flight") and time.monotonic() < end:
        time.sleep(0.02)
    return server.metric("partc_requests_in_flight") == 0


@pytest.mark.filterwarnings("ignore")
def test_langchain(server: Server) -> None:
    _need("langchain_openai")
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

    chat = ChatOpenAI(
        base_url=f"{server.url}/v1", api_key="none", model=MODEL, max_tokens=9, temperature=0, max_retries=0
    )
    expected = _text(server)
    answer = chat.invoke("abc")
    assert answer.content == expected
    assert answer.usage_metadata["output_tokens"] == 9
    assert "".join(str(chunk.content) for chunk in chat.stream("abc")) == expected
    told = chat.bind(logprobs=True).invoke("abc").response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in told) == expected
    with pytest.raises(Exception, match="unknown field: nothing"):
        chat.bind(extra_body={"nothing": 1}).invoke("abc")


def test_llm(server: Server, tmp_path: Path) -> None:
    _need("llm")
    entry = {"model_id": "ours", "model_name": MODEL, "api_base": f"{server.url}/v1", "api_key_name": ""}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    path = os.pathsep.join([str(Path(str(importlib.util.find_spec("llm").origin)).parents[1]), *sys.path])  # type: ignore[union-attr]
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONPATH": path, "OPENAI_API_KEY": "none"}
    for stream in ((), ("--no-stream",)):
        command = [sys.executable, "-W", "ignore", "-m", "llm", "prompt", "-m", "ours", "abc", *stream]
        options = ["-o", "max_tokens", "9", "-o", "temperature", "0"]
        done = subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout.rstrip("\n")) == (0, _text(server)), done.stderr


def test_clients_for_javascript(server: Server) -> None:
    modules = os.environ.get("PARTC_NODE")
    if not modules or shutil.which("node") is None:
        pytest.skip("PARTC_NODE names no folder with npm packages, or there is no node")
    command = ["node", str(SCRIPT), modules, server.url, MODEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen, expected = json.loads(done.stdout), _text(server)
    assert seen["models"] == [MODEL]
    assert seen["text"] == seen["streamed"] == seen["tokens"] == expected
    assert seen["usage"]["completion_tokens"] == seen["streamed_usage"]["completion_tokens"] == 9
    assert seen["stopped"] == [expected[: expected.index(expected[-1])], "stop"]
    assert seen["error"] == ["NotFoundError", 404, "model_not_found", "model"]
    assert seen["ai"] == [expected, "length", 9]
    assert seen["ai_streamed"] == [expected, 9]
    assert _quiet(server), "a stream that was broken off is cancelled"
