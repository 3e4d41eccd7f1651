"""What is kept from one command to the next, so that it is not made again: `$XDG_CACHE_HOME/partc/<kind>/<key>`.

An entry is a line with the hash of its content, then the content: what is damaged, or was cut by a loss of power, is
none. Writing is one rename, so that processes may share the folder. A folder that cannot be written keeps nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

_IS_READ = ContextVar("what is kept is read", default=True)


def user_cache() -> Path:
    """The folder of all that is kept (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "partc"


@contextmanager
def reading_kept(is_read: bool) -> Iterator[None]:
    """Let nothing that is kept be read in this block, if so: what is made there takes its place."""
    token = _IS_READ.set(is_read and _IS_READ.get())
    try:
        yield
    finally:
        _IS_READ.reset(token)


@dataclass(frozen=True)
class Kept:
    """The entries of a folder, which only their owner may read."""

    folder: Path

    def read(self, name: str) -> bytes | None:
        """The content of an entry, which counts as used now; None where there is none, or it is damaged."""
        if not _IS_READ.get():
            return None
        path = self.folder / name
        try:
            digest, _, content = path.read_bytes().partition(b"\n")
            if _digest(content) != digest:
                return None
            os.utime(path)
        except OSError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Keep an entry, if that can be done; nothing is flushed, since an entry that is cut is none."""
        draft = self.folder / f".{name}-{os.urandom(4).hex()}.new"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(_digest(content) + b"\n" + content)
                draft.replace(self.folder / name)
            except BaseException:  # a full disk is not filled further
                draft.unlink(missing_ok=True)
                raise

    def drop_oldest(self, limit_bytes: int) -> None:
        """Remove entries until the rest keeps within the limit, those not used for the longest time first; O(entries).

        What killed processes left counts as entries.
        """
        with suppress(OSError):
            found = [(path.stat(), path) for path in self.folder.iterdir()]
            total = 0
            for status, path in sorted(found, key=lambda entry: -entry[0].st_mtime_ns):
                total += status.st_size
                if total > limit_bytes:
                    path.unlink(missing_ok=True)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
