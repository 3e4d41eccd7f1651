"""`partc serve` in front of a ring, on the machine of its source: clients of OpenAI's API ask there.

It reads a folder `endpoint` beside the folders of devices: the build without weights, code and the devices' own keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from partc.deploy.runners import Runner
from partc.format.names import BUILD_FILE, PLACEMENT_FILE, device_folders
from partc.format.role import source_role

FOLDER = "endpoint"
"""The folder on the source's machine, beside those of devices."""
PORT = 8000
KEYS_FILE = "api-keys"
"""Keys of clients, one a line: in the folder `endpoint`, or a Secret of this name."""
NEW_KEY = f"(umask 077; openssl rand -hex 24 > {KEYS_FILE})"
"""The command that makes the first key of a client."""
_PLAN_FILE, _CLIENT_KEYS, _TOKENIZER = "plan.json", "keys", "tokenizer"


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of one build."""

    source: Runner
    """The source's runner, which it connects to."""
    files: tuple[str, ...]
    """The files that it reads, as paths below the build; without the keys that it shows the source."""


def read_endpoint(build: Path, runners: Sequence[Runner]) -> Endpoint | None:
    """The endpoint of a build; None where its model takes no text.

    Raises:
        BundleError: not a build, or a file in it is damaged.
    """
    if not source_role(build).can_be_served:
        return None
    source = next(one for one in runners if one.is_source)
    wanted = [Path(_PLAN_FILE), Path("devices") / source.device / _TOKENIZER]
    for folder in device_folders(build):
        wanted += [folder.relative_to(build) / name for name in (BUILD_FILE, PLACEMENT_FILE)]
    return Endpoint(source, tuple(sorted(str(path) for path in wanted if (build / path).exists())))


def copy_endpoint(endpoint: Endpoint, build: str, host: str, folder: str, *, with_keys: bool) -> list[str]:
    """The commands that put the files on the source's machine.

    Args:
        endpoint: whose files.
        build: the build, as the folder in which the commands are typed has it.
        host: the machine of the source, for ssh.
        folder: where devices' folders lie there.
        with_keys: whether `keys` of the build, with the secret of its clients, goes along.
    """
    place = f"{folder}/{FOLDER}"
    files = [*([_CLIENT_KEYS] if with_keys else []), *endpoint.files]
    return [
        f"ssh root@{host} mkdir -p {place}/{_CLIENT_KEYS}",
        f"tar -cf - -C {quote(build)} {' '.join(map(quote, files))} | ssh root@{host} tar -xpf - -C {place}",
    ]
