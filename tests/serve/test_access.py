from __future__ import annotations

from pathlib import Path

import pytest

from partc.cli.main import run
from partc.errors import ConfigError, RunError
from tests.runtime.bundles import graph_model

pytestmark = pytest.mark.serve


def test_keys_are_lines_that_nobody_else_reads(tmp_path: Path) -> None:
    from partc.serve.access import read_keys

    file = tmp_path / "keys"
    file.write_text("# a comment\n\n one \ntwo\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read it"):
        read_keys(file)
    file.chmod(0o600)
    assert read_keys(file) == {b"one", b"two"}
    file.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="holds no key"):
        read_keys(file)
    with pytest.raises(ConfigError, match="no such file"):
        read_keys(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("localhost", True), ("LOCALHOST:80", True), ("127.0.0.1:8000", True), ("[::1]", True), ("[::1]:8", True),
     ("evil.example", False), ("localhost.evil.example:80", False), ("127.0.0.1.evil", False), ("", False)],
)  # fmt: skip
def test_names_of_this_machine(host: str, is_own: bool) -> None:
    from partc.serve.access import _is_loopback_name

    assert _is_loopback_name(host) == is_own


def test_others_are_let_in_with_keys_only(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(build), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "give --api-key-file" in capsys.readouterr().err


def test_files_that_are_no_certificate(
    build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cert").write_text("none")
    options = ["--tls-cert", str(tmp_path / "cert"), "--tls-key", str(tmp_path / "cert")]
    assert run(["serve", str(build), "--port", "0", *options]) == 1
    assert "not a certificate with its key" in capsys.readouterr().err
    assert run(["serve", str(build), "--port", "0", *options[:2]]) == 2


def test_an_address_that_is_taken(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", str(build), "--port", str(taken.getsockname()[1])]) == 1
    told = capsys.readouterr().err
    assert "cannot listen" in told
    assert "or stop the process that has it" in told


@pytest.mark.parametrize("host", ["192.0.2.7", "nowhere.invalid"])
def test_an_address_of_another_machine(
    host: str, build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-of-some-length-0123456789\n")
    keys.chmod(0o600)
    assert run(["serve", str(build), "--host", host, "--api-key-file", str(keys)]) == 1
    assert "give an address of this machine with --host and --port" in capsys.readouterr().err


@pytest.mark.ort
def test_models_that_do_not_generate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph_model().write(tmp_path / "build")
    assert run(["serve", str(tmp_path / "build")]) == 1
    assert "reads no text that it answers or embeds: graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cause", "status"), [("input", 400), ("lost-peer", 503), ("stalled", 503), ("refused", 503), ("bug", 500)]
)  # fmt: skip
def test_causes_of_the_ring_have_a_status(cause: str, status: int) -> None:
    from partc.serve.errors import api_error

    error = api_error(RunError("text", cause=cause))  # type: ignore[arg-type]
    assert (error.status, error.body()["error"]["message"]) == (status, "text")
    assert ("retry-after" in error.headers) == (status == 503)
