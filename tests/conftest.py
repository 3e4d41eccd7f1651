"""Fixtures of all tests: no network, one thread a process, seeded numbers, `--update-golden`."""

from __future__ import annotations

import os

# Before anything imports numpy, torch or transformers; runners started by a test inherit it.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
# Whether a machine has built native runners must not decide what is tested: tests that want them say where they are.
os.environ["PARTC_RUNNERS"] = os.devnull
for _pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_pool, "1")

import atexit
import ctypes
import functools
import importlib.util
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.aloud import Aloud
from tests.native.ahead import building, put_last
from tests.turns import take_turns

_NEEDS = {
    "ort": ("onnxruntime",),
    "hf": ("torch", "transformers"),
    "tvm": ("tvm",),
    "ray": ("ray",),
    "serve": ("jinja2", "starlette", "tokenizers", "uvicorn"),
}
"""Marker -> what must be installed; an unmarked test belongs to the null tier and needs none of it."""

# Imports are kept for the next run of a user, not of the tests: they must see the code as it is. Workers inherit the
# folder of the process that starts them, so that a model is traced once for all of them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="partc-test-cache-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Test machines are shared: an example that takes long is not a failure, and a failure must come again.
settings.register_profile("partc", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("partc")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected results of golden cases"
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let a run in continuous integration tell how it goes."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and "PYTEST_XDIST_WORKER" not in os.environ and terminal is not None:
        config.pluginmanager.register(Aloud(terminal))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tiers whose libraries are not installed, so that the null tier runs everywhere; let tests take turns.

    Where CI is set, tests that need an OpenCL device fail without one.
    """
    take_turns(items)
    put_last(items)
    missing = {tier: _missing(modules) for tier, modules in _NEEDS.items()}
    for item in items:
        for tier in filter(missing.get, _NEEDS):
            if item.get_closest_marker(tier):
                item.add_marker(pytest.mark.skip(reason=f"tier {tier}: no {', '.join(missing[tier])}"))
        if item.get_closest_marker("opencl") and not (_has_opencl() or os.environ.get("CI")):
            item.add_marker(pytest.mark.skip(reason="tier opencl: no platform (Debian: pocl-opencl-icd)"))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Build the native runner beside the tests; one of several workers does."""
    if session.config.option.collectonly or os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        return (yield)
    with building(session.items):
        return (yield)


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [name for name in modules if importlib.util.find_spec(name) is None]


@functools.cache
def _has_opencl() -> bool:
    """Whether there is a platform, such as PoCL, whose device is the processor."""
    try:
        library = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return False
    count = ctypes.c_uint()
    return not library.clGetPlatformIDs(0, None, ctypes.byref(count)) and count.value > 0


@pytest.fixture
def rng() -> np.random.Generator:
    """A random generator that starts the same in every test."""
    return np.random.default_rng(20240229)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, with a space in its name as users' folders have."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
