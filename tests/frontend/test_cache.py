"""Kept imports: equal to fresh ones, used only where nothing changed, never trusted when damaged, never too many."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder, OnnxFile, RandomModel
from partc.frontend import cache
from partc.frontend.cache import cache_folder, load_cached
from partc.ir.graph import Module
from partc.ir.text import print_module
from partc.pipeline import versions
from tests.bundle.tiny import module, write_checkpoint


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[ModelConfig]]:
    """What is really imported, in a cache of its own; the import is that of the tiny model, without torch."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    imported: list[ModelConfig] = []

    def load(config: ModelConfig, *, progress: object) -> Module:
        imported.append(config)
        return _module(tmp_path)

    monkeypatch.setattr(cache, "load_module", load)
    yield imported


def _module(tmp_path: Path) -> Module:
    whole = module(tmp_path / "model", "null")
    return Module(whole.info, whole.graph)


def checkpoint(tmp_path: Path) -> ModelConfig:
    folder = write_checkpoint(tmp_path / "model")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return ModelConfig(CheckpointFolder(folder))


def entries() -> list[Path]:
    return sorted(cache_folder().iterdir())


def test_a_kept_import_is_a_fresh_one(tmp_path: Path, imports: list[ModelConfig]) -> None:
    config = checkpoint(tmp_path)
    texts = [print_module(load_cached(config)) for _ in range(3)]
    assert len(imports) == len(entries()) == 1
    assert texts == [print_module(_module(tmp_path))] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda folder, config: replace(config, max_sequence=64),
        lambda folder, config: replace(config, dtype="float16"),
        lambda folder, config: (folder / "config.json").write_text("{}") and config,
        lambda folder, config: (folder / "generation_config.json").write_text("{}") and config,
        lambda folder, config: (folder / "preprocessor_config.json").write_text("{}") and config,
        lambda folder, config: (folder / "processor_config.json").write_text("{}") and config,
        lambda folder, config: _rename_tensor(folder) and config,
        lambda folder, config: ModelConfig(RandomModel({"model_type": "llama"}, 0)),
        lambda folder, config: ModelConfig(CheckpointFolder(folder.rename(folder.parent / "moved"))),
    ],
)  # fmt: skip
def test_what_changes_an_import_is_imported(tmp_path: Path, imports: list[ModelConfig], change: Any) -> None:
    config = checkpoint(tmp_path)
    load_cached(config)
    load_cached(change(tmp_path / "model", config))
    assert len(imports) == 2


def _rename_tensor(folder: Path) -> bool:
    path = folder / "b.safetensors"
    data = path.read_bytes()
    assert b'"l1.norm"' in data
    path.write_bytes(data.replace(b'"l1.norm"', b'"l9.norm"'))
    return True


def test_other_code_imports_anew(
    tmp_path: Path, imports: list[ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = checkpoint(tmp_path)
    load_cached(config)
    monkeypatch.setattr(cache, "code_version", lambda *_: {"transformers": "0"})
    load_cached(config)
    assert len(imports) == 2


def test_the_version_of_code_sees_what_moves_and_what_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_code" / "a").mkdir(parents=True)
    (tmp_path / "some_code" / "__init__.py").touch()
    (tmp_path / "some_code" / "a" / "x.py").write_text("one")

    def version() -> str:
        versions.code_version.cache_clear()
        return versions.code_version("some_code")["sources"]

    seen = [version()]
    (tmp_path / "some_code" / "a" / "x.py").write_text("two")
    seen.append(version())
    (tmp_path / "some_code" / "a").rename(tmp_path / "some_code" / "b")
    seen.append(version())
    assert len(set(seen)) == 3
    assert version() == seen[-1]


def test_the_version_of_a_module_sees_that_module_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = []
    for name, text in (("one_file", "1"), ("other_file", "1"), ("one_file", "2")):
        (tmp_path / f"{name}.py").write_text(text)
        versions.code_version.cache_clear()
        seen.append(versions.code_version("one_file")["sources"])
    assert seen[0] == seen[1] != seen[2]


def test_where_a_key_stands_in_model_yaml_does_not_count(tmp_path: Path, imports: list[ModelConfig]) -> None:
    config = checkpoint(tmp_path)
    load_cached(config)
    load_cached(replace(config, sequence_place="model.yaml: line 7"))
    assert len(imports) == 1


@pytest.mark.parametrize("damage", [b"", b"\n", b"partc-ir 1\n", b"cut", "flip"])
def test_a_damaged_entry_is_replaced(tmp_path: Path, imports: list[ModelConfig], damage: bytes | str) -> None:
    config = checkpoint(tmp_path)
    load_cached(config)
    (entry,) = entries()
    good = entry.read_bytes()
    if damage == "flip":
        damage = good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
    assert isinstance(damage, bytes)
    entry.write_bytes(good[:1000] if damage == b"cut" else damage)
    assert print_module(load_cached(config)) == print_module(_module(tmp_path))
    assert len(imports) == 2
    assert entry.read_bytes() == good


def test_an_entry_that_this_partc_cannot_read_is_replaced(tmp_path: Path, imports: list[ModelConfig]) -> None:
    config = checkpoint(tmp_path)
    load_cached(config)
    (entry,) = entries()
    good = entry.read_bytes()
    text = b"partc-ir 99\n"
    entry.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert print_module(load_cached(config)) == print_module(_module(tmp_path))
    assert entry.read_bytes() == good


def test_nothing_is_left_where_the_disk_is_full(
    tmp_path: Path, imports: list[ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = checkpoint(tmp_path)
    monkeypatch.setattr(Path, "replace", refuse)
    assert print_module(load_cached(config)) == print_module(_module(tmp_path))
    assert entries() == []


def test_a_checkpoint_that_lost_a_shard_is_asked_again(tmp_path: Path, imports: list[ModelConfig]) -> None:
    config = checkpoint(tmp_path)
    names = {"l0.q": "a.safetensors", "l1.q": "b.safetensors"}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    load_cached(config)
    (tmp_path / "model" / "b.safetensors").unlink()
    load_cached(config)
    assert len(imports) == 2, "a real import refuses it, in its own order of complaints"


def test_a_cache_that_cannot_be_written_is_none(
    tmp_path: Path, imports: list[ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = checkpoint(tmp_path)
    (tmp_path / "cache").write_text("a file")
    for _ in range(2):
        assert print_module(load_cached(config)) == print_module(_module(tmp_path))
    assert len(imports) == 2


def test_the_oldest_go_first(
    tmp_path: Path, imports: list[ModelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [replace(checkpoint(tmp_path), max_sequence=size) for size in (8, 16, 32)]
    for number, config in enumerate(configs[:2]):
        load_cached(config)
        os.utime(entries()[-1], ns=(number, number))
    size = entries()[0].stat().st_size
    (cache_folder() / "left.tmp").write_bytes(bytes(size))  # of a process that was killed
    os.utime(cache_folder() / "left.tmp", ns=(0, 0))
    load_cached(configs[0])  # used, so that the second is the oldest now
    monkeypatch.setattr(cache, "LIMIT_BYTES", 2 * size)
    load_cached(configs[2])
    imports.clear()
    assert len(entries()) == 2
    for config in (configs[0], configs[2]):
        load_cached(config)
    assert imports == []
    load_cached(configs[1])
    assert len(imports) == 1


def test_processes_may_share_it(tmp_path: Path, imports: list[ModelConfig]) -> None:
    config = checkpoint(tmp_path)
    texts: list[str] = []

    def load() -> None:
        for _ in range(5):
            texts.append(print_module(load_cached(config)))
            for path in entries():
                path.unlink(missing_ok=True)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [print_module(_module(tmp_path))] * 20


def test_onnx_files_are_not_kept(tmp_path: Path, imports: list[ModelConfig]) -> None:
    load_cached(ModelConfig(OnnxFile(tmp_path / "net.onnx"), task="graph"))
    assert len(imports) == 1
    assert not cache_folder().exists()


@pytest.mark.hf
def test_a_real_import_comes_back_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from partc.frontend import load_module
    from tests.families.check import save_tiny
    from tests.families.tiny import tiny_config

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_tiny(tiny_config("llama"), tmp_path / "model")
    config = ModelConfig(CheckpointFolder(tmp_path / "model"), max_sequence=32)
    fresh = load_module(config)
    monkeypatch.setattr(cache, "load_module", lambda *_, **__: fresh)
    first = load_cached(config)
    monkeypatch.setattr(cache, "load_module", lambda *_, **__: pytest.fail("imported again"))
    kept = load_cached(config)
    assert print_module(kept) == print_module(first) == print_module(fresh)
    assert kept.info == fresh.info


@pytest.mark.in_turns(2)
@pytest.mark.hf
def test_a_kept_import_needs_no_torch(tmp_path: Path) -> None:
    from tests.families.check import save_tiny
    from tests.families.tiny import tiny_config

    save_tiny(tiny_config("llama"), tmp_path / "model")
    (tmp_path / "model.yaml").write_text("model: ./model\nmax_sequence: 32\n")
    code = (
        "import sys; from partc.cli.load import load_model; from partc.ir.text import print_module;"
        "print(len(print_module(load_model('model.yaml'))), 'torch' in sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [loaded for _, loaded in outputs] == ["True", "False"]
    assert outputs[0][0] == outputs[1][0]
