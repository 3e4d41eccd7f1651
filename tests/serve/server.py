"""A server as a process, with a tiny model of 17 characters and tokens, whose answers mean nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partc.format.names import BUILD_FILE
from tests.runtime.bundles import language_model, reseal

ROOT = Path(__file__).parents[2]
MODEL = "tiny"
LENGTH = 900
SPECIAL = ("<pad>", "<s>", "</t>", "</s>")
TURN_END = 2
CHARACTERS = "abcdefghijkl "
JSON = {"Content-Type": "application/json"}
TEMPLATE = "{% for m in messages %}<s>{{ m.role[0] }}{{ m.content }}</t>{% endfor %}<s>a"


def tokenizer_json() -> str:
    """A token a character."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {text: index for index, text in enumerate([*SPECIAL, *CHARACTERS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    return str(made.to_str())


def make_build(folder: Path) -> Path:
    """A ring of three devices that compute nothing of use; its answers end by length, or by a stop text."""
    build = language_model("null", max_sequence=LENGTH, tokenizer=tokenizer_json(), prefix_reuse=True).write(
        folder / "build"
    )
    for place in sorted((build / "devices").iterdir()):
        model = json.loads((place / BUILD_FILE).read_text())["model"]
        reseal(place / BUILD_FILE, model={**model, "eos_token_ids": []})
    (folder / "template.jinja").write_text(TEMPLATE)
    return build


def _children(task: Path) -> str:
    """The process ids of a thread's children; none where it has just ended."""
    try:
        return (task / "children").read_text()
    except FileNotFoundError:
        return ""


@dataclass
class Server:
    """A server that runs."""

    process: subprocess.Popen[str]
    url: str
    ca: Path | None = None

    def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        return self.ask("GET", path, None, key)

    def post(self, path: str, body: Any, key: str | None = None) -> tuple[int, Any]:
        return self.ask("POST", path, json.dumps(body).encode() if not isinstance(body, bytes) else body, key)

    def complete(self, **fields: Any) -> tuple[int, Any]:
        return self.post("/v1/completions", {"model": MODEL, "prompt": "abc", "seed": 5, **fields})

    def ask(self, method: str, path: str, data: bytes | None, key: str | None) -> tuple[int, Any]:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        request = urllib.request.Request(self.url + path, data, {**JSON, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, read(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, read(error.read())

    def lines(self, path: str, body: Any) -> Iterator[str]:
        """The lines of a stream as they come; None for `body`: it is asked for by GET."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, JSON)
        with urllib.request.urlopen(request, timeout=60) as answer:
            for line in answer:
                yield line.decode().rstrip("\n")

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])

    def runner(self, device: str, build: Path | None = None) -> int:
        """Process id of a device's runner; of that ring, where there are several."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = " ".join(map(_children, tasks)).split()
        ending = f"{'' if build is None else build}/devices/{device}"
        return next(
            int(pid)
            for pid in children
            if any(word.endswith(ending) for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
        )


def read(data: bytes) -> Any:
    """JSON where it is any, else text."""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def events(text: str) -> list[Any]:
    """The data of server-sent events."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@contextmanager
def serving(
    build: Path, *options: str, ready: bool = True, program: str = "partc.cli", python: str = ""
) -> Iterator[Server]:
    """`partc serve` until the block ends, with the template beside the build; `python` of an install of its own."""
    command = [python or sys.executable, "-P", "-m", program, "serve", str(build), "--port", "0", "--json"]
    command += ["--chat-template", str(build.parent / "template.jinja"), *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": "" if python else str(ROOT)},
    )
    assert process.stdout is not None
    try:
        server = Server(process, await_state(process, "listening")["url"])
        if ready:
            await_state(process, "ready")
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def await_state(process: subprocess.Popen[str], state: str) -> dict[str, str]:
    """The line that tells a state."""
    assert process.stdout is not None
    for line in process.stdout:
        told: dict[str, str] = json.loads(line)
        if told["state"] == state:
            return told
    raise AssertionError(f"the server ended before it was {state}")


def pieces(stream: Sequence[Any], index: int = 0) -> str:
    """The text of one choice of a stream."""
    chosen = [choice for event in stream if event != "[DONE]" for choice in event["choices"]]
    texts = (one.get("text", one.get("delta", {}).get("content")) for one in chosen if one["index"] == index)
    return "".join(text or "" for text in texts)
