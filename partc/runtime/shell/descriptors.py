"""Open files and connections that this process may have: as many as the system grants, and no fewer than it needs."""

from __future__ import annotations

import contextlib
import os
import socket

from partc.errors import RunError

LEAST = 64
"""A runner has some 40 open: sockets, ZeroMQ's own, the weights."""
MOST = 65_536
_MOST_SILENT = 256


def raise_limit() -> int:
    """Lift the soft limit of open files to the hard one; the number of files that may be open now.

    Raises:
        RunError: the system allows too few to run at all.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if 0 <= soft < LEAST:
        message = f"the system lets this process open {soft} files, and a runner needs {LEAST}"
        raise RunError(message, where="ulimit -n", hint="raise the limit: ulimit -n 1024")
    return MOST if soft == resource.RLIM_INFINITY else soft


def most_silent() -> int:
    """Connections that may stand although nothing has come of them yet; a quarter of the files at most."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_SILENT if soft == resource.RLIM_INFINITY else max(8, min(_MOST_SILENT, soft // 4))


def hang_up(descriptor: int) -> None:
    """End a connection of ZeroMQ's, which closes its own end when it notices."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
