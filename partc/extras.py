"""Extras of pyproject.toml: the packages that each brings, and the command that installs one.

This is the one home of such commands. partc is on no package index, so `pip install 'partc[serve]'` would find
nothing, or another project of that name; the command follows from how this partc was installed:

| installed from | command |
| --- | --- |
| a checkout that Python imports in place | `pip install -e '/path/of/checkout[serve]'` |
| a checkout or a wheel that still is where it was | `pip install '/path/of/partc-0.1.0-py3-none-any.whl[serve]'` |
| anything else | `pip install 'starlette>=1.0' …`, the packages of the extra themselves |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from shlex import quote

from partc import __version__

OF_COMMAND = {
    **dict.fromkeys(("run", "watch", "simulate", "report", "move", "keys", "deploy"), "client"),
    "serve": "serve",
    "fleet": "fleet",
}
"""Command of `partc` → the least extra with which it works; `compile` for every other one."""
COMPILE = "compile"

_MODULES = {
    "apache-tvm": "tvm",
    "apache-tvm-ffi": "tvm_ffi",
    "onnxruntime-gpu": "onnxruntime",
    "pillow": "PIL",
    "protobuf": "google",
    "pyyaml": "yaml",
}
"""Package → the module that it brings, where it is called otherwise."""
_ROOT = Path(__file__).resolve().parents[1]


def install_command(*extras: str, upgrade: bool = False) -> str:
    """The command that adds extras to this install of partc.

    Args:
        extras: names of extras, those of pyproject.toml.
        upgrade: whether packages that are there already should become newer ones.
    """
    pip = "pip install --upgrade" if upgrade else "pip install"
    wanted = ",".join(extras)
    if _checkout() is not None:
        return f"{pip} -e {quote(f'{_ROOT}[{wanted}]')}"
    source = _source()
    if source is not None:
        return f"{pip} {quote(f'{source}[{wanted}]')}"
    packages = dict.fromkeys(package for extra in extras for package in requirements()[extra])
    return " ".join([pip, *map(quote, packages)])


def wheel_command(folder: str) -> str:
    """The command that puts partc's wheel, `wheel_name()`, into a folder, for a machine that has no checkout."""
    source = _ROOT if _checkout() is not None else _source()
    if source is not None and source.suffix == ".whl":
        return f"cp {quote(str(source))} {quote(f'{folder}/{wheel_name()}')}"
    checkout = "CHECKOUT-OF-PARTC" if source is None else quote(str(source))
    return f"pip wheel --no-deps --wheel-dir {quote(folder)} {checkout}"


def wheel_name() -> str:
    """The name of partc's wheel: of the one that this partc was installed from, else of one that a checkout makes.

    A released wheel with native runners names the systems that take it.
    """
    if _checkout() is None and (source := _source()) is not None and source.suffix == ".whl":
        return source.name
    return f"partc-{__version__}-py3-none-any.whl"


def extra_of(module: str, command: str = "") -> str | None:
    """The extra that brings a module: the command's own if it does, else the first one; None: no extra does.

    Args:
        module: the name of a module, `yaml` or `rich.table`.
        command: the command of `partc` that needs it, `serve`.
    """
    own = OF_COMMAND.get(command, COMPILE)
    top = module.partition(".")[0]
    return next((extra for extra in (own, *requirements()) if top in modules_of(extra)), None)


def modules_of(extra: str) -> frozenset[str]:
    """The top-level modules of the packages that an extra names; those that these bring along are not known."""
    return frozenset(map(_module, requirements()[extra]))


@cache
def requirements() -> Mapping[str, tuple[str, ...]]:
    """Extra → what it asks for, `starlette>=1.0`."""
    checkout = _checkout()
    if checkout is not None:
        return {extra: tuple(items) for extra, items in checkout.items()}
    from importlib.metadata import metadata, requires

    names = metadata("partc").get_all("Provides-Extra") or []
    return {extra: tuple(_of_extra(requires("partc") or (), extra)) for extra in names}


def _of_extra(entries: Iterable[str], extra: str) -> Iterable[str]:
    """The requirements of `starlette>=1.0; extra == 'serve'` and the like."""
    for entry in entries:
        package, _, marker = entry.partition(";")
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker):
            yield package.strip()


def _module(requirement: str) -> str:
    package = re.split(r"[<>=!~ ;\[]", requirement)[0].lower()
    return _MODULES.get(package, package.replace("-", "_"))


@cache
def _checkout() -> Mapping[str, list[str]] | None:
    """The extras in the pyproject.toml beside the package; None: the package is not imported from a checkout."""
    import tomllib

    file = _ROOT / "pyproject.toml"
    if not file.is_file():
        return None
    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    found: Mapping[str, list[str]] = project.get("optional-dependencies", {})
    return found if project.get("name") == "partc" else None


def _source() -> Path | None:
    """The folder or wheel that pip installed partc from, if it still is there."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        record = distribution("partc").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(record).get("url", "") if record else "")
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.exists() else None
