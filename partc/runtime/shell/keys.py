"""The CURVE keys of a build, which decide who may connect to whom.

```
build/keys/                 0700   the client's
    client.secret           0600   {"public": Z85, "secret": Z85}
    devices.json            0600   {device: public key}
build/devices/NAME/keys/    0700   one device's; its secret is in no other folder
    secret.key              0600   {"public": Z85, "secret": Z85}
    peers.json              0600   {device: public key}, and "client" on the source
```

The public keys in `peers.json` are the allow list: whoever proves that it has the secret of one is that peer,
whoever has none of them is refused before its first message. To make the keys again is to rotate them: copy
every device's `keys` folder to it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from partc.atomic import replace, stage
from partc.errors import BundleError
from partc.format.json_text import read_json
from partc.format.messages import CLIENT

SECRET_FILE = "secret.key"
PEERS_FILE = "peers.json"
CLIENT_SECRET_FILE = "client.secret"
DEVICES_FILE = "devices.json"
_Z85_LENGTH = 40
_MOST_BYTES = 1 << 20
_REMEDY = "partc keys BUILD makes new keys; copy each device's keys folder to it again"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, both halves as Z85 text."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


@dataclass(frozen=True, slots=True)
class Keys:
    """One participant's own pair and the public keys of those that it talks to."""

    own: KeyPair
    peers: Mapping[str, str]

    def name_of(self, public: str) -> str | None:
        """The peer that this public key belongs to."""
        return next((name for name, key in self.peers.items() if key == public), None)


def make_keys(build_dir: Path, devices: Iterable[str], *sources: str) -> None:
    """Make the keys of a build, or make them again; a client may talk to the `sources` alone.

    Every file is written beside its place first and moved there at the end, so that no reader ever sees half
    a file. A rotation that is killed between two moves leaves keys that do not fit each other: the runners
    refuse such peers by name, and making the keys again mends it.
    """
    names = sorted(devices)
    pairs = {name: _new_pair() for name in (*names, CLIENT)}
    public = {name: pair.public for name, pair in pairs.items()}
    files = {
        build_dir / "keys" / CLIENT_SECRET_FILE: _secret_text(pairs[CLIENT]),
        build_dir / "keys" / DEVICES_FILE: _text({name: public[name] for name in names}),
    }
    for name in names:
        peers = [other for other in names if other != name] + ([CLIENT] if name in sources else [])
        folder = build_dir / "devices" / name / "keys"
        files[folder / SECRET_FILE] = _secret_text(pairs[name])
        files[folder / PEERS_FILE] = _text({other: public[other] for other in peers})
    staged = [(_stage(path, text), path) for path, text in files.items()]
    for temporary, path in staged:
        replace(temporary, path)


def load_device_keys(bundle_dir: Path) -> Keys:
    """The keys of one device.

    Raises:
        BundleError: they are missing, damaged, or readable for other users.
    """
    folder = bundle_dir / "keys"
    return Keys(_read_pair(folder / SECRET_FILE), _read_public(folder / PEERS_FILE))


def load_client_keys(build_dir: Path) -> Keys:
    """The keys of the client of a build; raises as `load_device_keys`."""
    folder = build_dir / "keys"
    return Keys(_read_pair(folder / CLIENT_SECRET_FILE), _read_public(folder / DEVICES_FILE))


def _new_pair() -> KeyPair:
    import zmq

    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def _stage(path: Path, text: str) -> Path:
    """Write `text` beside `path`, readable for this user alone; where it stands. What a killed one left is removed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    for left in path.parent.glob(f".{path.name}*.new"):
        left.unlink(missing_ok=True)
    return stage(path, text, mode=0o600)


def _text(content: Mapping[str, str]) -> str:
    return f"{json.dumps(content, sort_keys=True, indent=1)}\n"


def _secret_text(pair: KeyPair) -> str:
    return _text({"public": pair.public, "secret": pair.secret})


def _read_pair(path: Path) -> KeyPair:
    content = _read_texts(path)
    if path.stat().st_mode & 0o077:
        hint = f"chmod 600 {path}"
        raise BundleError("other users may read this secret key", where=str(path), hint=hint)
    if set(content) != {"public", "secret"}:
        raise BundleError("not a key file: public and secret are expected", where=str(path), hint=_REMEDY)
    return KeyPair(content["public"], content["secret"])


def _read_public(path: Path) -> dict[str, str]:
    return _read_texts(path)


def _read_texts(path: Path) -> dict[str, str]:
    if path.is_symlink() or path.parent.is_symlink():
        raise BundleError("a symbolic link has no place among keys", where=str(path), hint=_REMEDY)
    content = read_json(path, BundleError, _REMEDY, missing="the keys are missing", most_bytes=_MOST_BYTES)
    fine = isinstance(content, dict) and all(
        isinstance(value, str) and len(value) == _Z85_LENGTH for value in content.values()
    )
    if not fine:
        raise BundleError(
            "not a key file: Z85 texts of 40 letters are expected", where=str(path), hint=_REMEDY
        )
    return dict(content)
