"""The ring that `--connect` means: one that runs on this machine, or one at an address."""

from __future__ import annotations

from pathlib import Path

from partc.errors import PartcError, RunError
from partc.format.role import source_role
from partc.runtime.client.client import Client
from partc.runtime.client.ring_file import running_ring
from partc.runtime.core.liveness import LINGER_S

AUTO = "auto"


def reach_ring(build: Path, connect: str, *, insecure: bool, linger_s: float = LINGER_S) -> Client:
    """Connect to the source of a ring.

    Args:
        build: the folder of the build.
        connect: HOST:PORT; `auto`: the local ring of the build that runs, else the address in devices.yaml.
        insecure: neither encrypt nor authenticate; a local ring tells it by itself.
        linger_s: how long requests wait for a source that is out of reach. A local one never is: it has ended.

    Raises:
        BundleError: not a build, or its client keys are missing.
        RunError: there is no such ring, or it does not take this client.
    """
    if connect != AUTO:
        return Client.connect(build, connect, insecure=insecure, linger_s=linger_s)
    ring = running_ring(build)
    if ring is None:
        return Client.connect(build, insecure=insecure, linger_s=linger_s)
    source = source_role(build).source

    def explain(error: PartcError) -> PartcError:
        is_end = isinstance(error, RunError) and (error.cause, error.where) == ("lost-peer", source)
        return _ended(build) if is_end else error

    return Client.connect(build, ring.source, insecure=ring.insecure, linger_s=0.0, explain=explain)


def _ended(build: Path) -> RunError:
    """About a local ring that is gone; the command that started it knows why."""
    hint = f"see what the command says that ran it; partc run {build} --prompt TEXT runs another"
    return RunError("the ring has ended", where=str(build), hint=hint, cause="lost-peer")
