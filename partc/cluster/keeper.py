"""The keeper of a device: it runs the device's runner for as long as it lives itself.

A runner ends when its standard input does, so none outlives its keeper. One that dies is started again at once; one
that dies again and again ends the keeper after a pause, and whoever keeps the keeper starts both anew.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from partc.cluster.posts import Post
from partc.errors import RunError
from partc.format.names import BUILD_FILE
from partc.runtime.client.keeper import Keeper
from partc.runtime.client.runners import choose_runner, start_runner
from partc.runtime.shell.process import RunnerProcess

_LOOK_S = 0.5
_PAUSE_S = 5.0
"""A keeper whose runner cannot live ends after it: longer than a ring takes to heal by itself."""


class DeviceKeeper:
    """Keeps the runner of one device."""

    def __init__(self, post: Post) -> None:
        """Start it.

        Raises:
            RunError: this machine has no such folder.
        """
        if not Path(post.folder, BUILD_FILE).is_file():
            hint = f"copy devices/{post.device} of the build there, or give `folder` in fleet.yaml"
            raise RunError(f"there is no {BUILD_FILE}", where=post.folder, hint=hint)
        self._post = post
        self._runner = choose_runner(Path(post.folder), None)
        self._keeper = Keeper([post.device], self._spawn, restart=True)
        self._ended = threading.Event()
        self._keeper.start()
        greeting = f"{json.dumps({'peers': dict(post.peers)})}\n".encode()
        self._process.tell(greeting)
        self._keeper.watch(greeting)
        threading.Thread(target=self._end_with_it, name="end", daemon=True).start()

    def post(self) -> Post:
        """What it keeps."""
        return self._post

    def state(self) -> dict[str, Any]:
        """`{pid, deaths, last}`: the runner's process, how often one died, and the last words."""
        death = self._keeper.deaths.get(self._post.device)
        last = None if death is None else death.error.message
        return {"pid": self._process.popen.pid, "deaths": self._keeper.died, "last": last}

    def close(self) -> None:
        """End the runner."""
        self._ended.set()
        self._keeper.stop()
        process = self._process
        process.popen.kill()
        process.popen.wait()
        process.close()
        self._keeper.release()

    @property
    def _process(self) -> RunnerProcess:
        return self._keeper.processes[self._post.device]

    def _spawn(self, name: str) -> RunnerProcess:
        post = self._post
        options = ["--stdio", "--bundle", post.folder, "--listen", post.listen]
        return start_runner([*self._runner, *options, *(["--insecure"] if post.insecure else [])])

    def _end_with_it(self) -> None:
        while not any(death.is_final for death in list(self._keeper.deaths.values())):
            if self._ended.wait(_LOOK_S):
                return
        if not self._ended.wait(_PAUSE_S):
            os._exit(1)  # an actor that raises stays alive
