"""A runtime that was written from the manuals, examples/third-runtime, in rings with both of partc's own runners."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import partc
from partc.cli.main import run
from partc.cluster.demo import free_ports
from tests.native.compiled import native_runner, need

pytestmark = [pytest.mark.hf, pytest.mark.tvm, pytest.mark.native]

SOURCE = Path(__file__).parents[2] / "examples" / "third-runtime"
MODEL = """\
model:
  seed: 4
  config: {model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2,
           intermediate_size: 48, vocab_size: 120, max_position_embeddings: 256, tie_word_embeddings: true}
max_sequence: 256
max_batch: 2
max_requests: 2
"""
DEVICE = "target: tvm, flops: 10 GFLOP/s, memory_bandwidth: 8 GB/s, memory: 1 GB, options: {chunks: [8]}"
DEVICES = f"""\
source: a
place: {{a: layers 0-0, b: layers 1-1, c: layers 2-2}}
devices: {{a: {{{DEVICE}}}, b: {{{DEVICE}}}, c: {{{DEVICE}}}}}
links: {{default: {{bandwidth: 1 Gbit/s, latency: 1 ms}}}}
"""
PROMPT, TOKENS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], 120
WAYS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 7},
    {"temperature": 1.3, "top_k": 40, "top_p": 0.9},
)

Commands = Mapping[str, list[str]]
"""Device -> the command that starts it."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("third")
    (folder / "model.yaml").write_text(MODEL)
    (folder / "devices.yaml").write_text(DEVICES)
    files = [str(folder / "model.yaml"), "--target", str(folder / "devices.yaml")]
    assert run(["compile", *files, "-o", str(folder / "build")]) == 0
    return folder / "build"


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(None if shutil.which("make") and shutil.which("cc") else "no make, or no C compiler")
    folder = tmp_path_factory.mktemp("runtime") / "source"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("runtime"))
    for header in ("zmq.h", "sodium.h", "jansson.h"):
        command = ["cc", "-E", "-include", header, "-x", "c", os.devnull]
        found = subprocess.run(command, capture_output=True, check=False)
        need(f"no {header} (README.md of examples/third-runtime)" if found.returncode else None)
    made = subprocess.run(["make", "-C", str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "warning" not in made.stderr
    return folder / "runtime"


@pytest.fixture(scope="module")
def expected(build: Path) -> list[list[partc.Piece]]:
    """The answers of a ring of partc's native runners."""
    native = [str(native_runner())]
    with ring_of(build, dict.fromkeys("abc", native)) as ring:
        answers = [ring.answer(way) for way in WAYS]
    assert len({tuple(answer) for answer in answers}) == len(WAYS)
    return answers


class LocalRing:
    """Devices as processes of this machine, each started with a command of its own."""

    def __init__(self, build: Path, commands: Commands) -> None:
        self._build, self._commands = build, commands
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip("abc", free_ports(3), strict=True)}
        self.processes = {name: self._started(name) for name in commands}

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        peers = [f"{peer}={address}" for peer, address in self.addresses.items() if peer != name]
        options = ["--bundle", str(self._build / "devices" / name), "--listen", self.addresses[name]]
        options += [word for peer in peers for word in ("--peer", peer)]
        return subprocess.Popen([*self._commands[name], *options], stderr=subprocess.DEVNULL)

    def restart(self, name: str) -> None:
        """Kill a device, and start it again."""
        self.processes[name].kill()
        self.processes[name].wait()
        self.processes[name] = self._started(name)

    def answer(self, way: Mapping[str, float], victim: str | None = None) -> list[partc.Piece]:
        """The tokens of an answer, during which a device is killed and started again."""
        with partc.Ring(self._build, connect=self.addresses["a"]) as client:
            options = {"max_new_tokens": TOKENS, "ignore_eos": True, **way}
            with client.stream(PROMPT, **options) as pieces:  # type: ignore[arg-type]
                for _ in pieces:
                    if victim and len(pieces.told) > 20:
                        self.restart(victim)
                        victim = None
                return list(pieces.told)

    def end(self) -> None:
        """Kill all devices."""
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def ring_of(build: Path, commands: Commands) -> Iterator[LocalRing]:
    ring = LocalRing(build, commands)
    try:
        yield ring
    finally:
        ring.end()


def with_third(third: Path, place: str) -> Commands:
    """The third runtime at one place of a ring, partc's runners at the others."""
    own = [[str(native_runner())], [sys.executable, "-m", "partc.runtime"]]
    return {name: [str(third)] if name == place else own.pop() for name in "abc"}


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("place", ["a", "b", "c"])
def test_tokens_are_those_of_our_own_runners(
    build: Path, third: Path, expected: list[list[partc.Piece]], place: str
) -> None:
    with ring_of(build, with_third(third, place)) as ring:
        assert [ring.answer(way) for way in WAYS] == expected
        for victim in "bc":  # whichever runs there
            assert ring.answer(WAYS[1], victim) == expected[1]
        with pytest.raises(partc.RunError) as lost:
            ring.answer(WAYS[1], "a")
        assert lost.value.cause == "lost-peer"
        assert ring.answer(WAYS[1]) == expected[1]


@pytest.mark.in_turns(3)
def test_garbage_at_its_port_ends_nothing(
    build: Path, third: Path, expected: list[list[partc.Piece]]
) -> None:
    with ring_of(build, with_third(third, "b")) as ring:
        assert ring.answer(WAYS[0]) == expected[0]
        host, port = ring.addresses["b"].split(":")
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x01\x7f" + os.urandom(200)):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(garbage)
        assert ring.answer(WAYS[0]) == expected[0]
        assert ring.processes["b"].poll() is None


def test_a_file_that_has_changed_is_not_loaded(build: Path, third: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(build / "devices" / "b", tmp_path / "b")
    with (folder / "library.so").open("ab") as library:
        library.write(b"\0")
    command = [str(third), "--bundle", str(folder), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert (
        done.stderr == f"error: {folder}/library.so: is not the file of this build; copy the folder again\n"
    )
