"""Surroundings in which the blocks of a manual run: a folder as its reader has one, and stand-ins for what is far away.

| stand-in | for |
| --- | --- |
| the storyteller of `examples/` | `model.yaml` and `devices.yaml` of the reader, models of a hub |
| ports of this machine | addresses of devices |
| `partc serve` that is stopped when it is ready | one that runs until Ctrl-C |
| `pip` that does nothing | an installation, which the tier `install` tests |
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from partc.cluster.demo import free_ports
from partc.runtime.client.launch import launch_local
from partc.runtime.client.ring_file import told_in_file
from tests.manuals.blocks import ROOT
from tests.serve.server import serving

MODEL = """\
model: examples/storyteller
max_sequence: 256
max_batch: 2
max_requests: 4
workload: {prompt: 32, generate: 64}
"""
_PROGRAM = '#!/bin/sh\nPYTHONPATH={root} exec {python} -P -m {module} "$@"\n'
_PROGRAMS = {
    "partc": _PROGRAM.format(root=ROOT, python=sys.executable, module="tests.manuals.until_ready"),
    "partc-runner": _PROGRAM.format(root=ROOT, python=sys.executable, module="partc.runtime"),
    "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    "pip": "#!/bin/sh\n",
}


@dataclass
class Surroundings:
    """A folder, and what stands in it for what."""

    folder: Path
    instead: dict[str, str] = field(default_factory=dict)
    """Text in a block → the text that is run."""

    def adapt(self, script: str) -> str:
        """The script as it is run."""
        for text, other in self.instead.items():
            script = script.replace(text, other)
        return script


def make_folder(folder: Path, more: str = "") -> Surroundings:
    """A folder with the examples, model.yaml, devices.yaml (`more` at its end), and programs.

    Its devices compile for onnxruntime, which is quick; blocks that name the example's own file do so for TVM.
    """
    for name in ("storyteller", "embed"):
        ignored = shutil.ignore_patterns("node_modules", "build")
        shutil.copytree(ROOT / "examples" / name, folder / "examples" / name, ignore=ignored)
    (folder / "model.yaml").write_text(MODEL)
    devices = (ROOT / "examples/storyteller/devices.yaml").read_text()
    (folder / "devices.yaml").write_text(devices.replace("arch: host,", "target: ort,") + more)
    programs = folder / ".programs"
    programs.mkdir()
    for name, text in _PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    first, second, http = free_ports(3)
    return Surroundings(
        folder,
        {
            "Qwen/Qwen3-0.6B ": "examples/storyteller ",
            "max_sequence: 1024": "max_sequence: 256",
            "arch: aarch64": "arch: host",
            "192.0.2.5:5555": f"127.0.0.1:{first}",
            "192.0.2.7:5555": f"127.0.0.1:{second}",
            "scp -rp home/devices/board board:": "partc-runner --bundle home/devices/board &",
            "scp -rp build/devices/board board:": "partc-runner --bundle build/devices/board &",
            "curl -s localhost:8000": f"curl -sf localhost:{http}",
            ":8000": f":{http}",
        },
    )


@contextmanager
def _ring(made: Surroundings) -> Iterator[None]:
    """A ring of the build runs, as `--connect auto` finds it."""
    build = made.folder / "build"
    # Pieces that may move in the reader's build, in place of those of the manual.
    made.instead |= {"8-11 --to board": "8-9 --to old", '"layers 4-5" --to board': "14 --to old"}
    with launch_local(build) as ring, told_in_file(build, ring.source, insecure=False):
        yield


@contextmanager
def _many_devices(made: Surroundings) -> Iterator[None]:
    """Devices that hold the whole model each, so that three of them can be two rings; prompts that it has room for."""
    devices = made.folder / "devices.yaml"
    devices.write_text(re.sub(r"memory: 1\d MB", "memory: 60 MB", devices.read_text()))
    made.instead["prompt: 300"] = "prompt: 100"
    yield


@contextmanager
def _server(made: Surroundings) -> Iterator[None]:
    """A server of the build, at the port that clients of the manual ask."""
    for name in ("kitchen", "office"):
        shutil.copytree(made.folder / "build", made.folder / name)
    (made.folder / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with serving(made.folder / "build") as server:
        made.instead["curl -s localhost:8000"] = f"curl -sf {server.url.removeprefix('http://')}"
        yield


OVERLAP: Mapping[str, str] = {"docs/balancing.md": "overlap: 3\n"}
"""Manual → what its devices.yaml has besides."""
AROUND: Mapping[str, Callable[[Surroundings], AbstractContextManager[None]]] = {
    "docs/balancing.md": _ring,
    "docs/fleet.md": _many_devices,
    "docs/serving.md": _server,
}
"""Manual → what runs beside its blocks."""


def around(manual: str, made: Surroundings) -> AbstractContextManager[None]:
    """Processes beside the blocks of a manual."""
    return AROUND[manual](made) if manual in AROUND else nullcontext()
