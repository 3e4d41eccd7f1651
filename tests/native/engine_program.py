"""The engine of the native runner as an `Engine`: a process of native/tests/engine.cpp, asked in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from partc.errors import PartcError
from partc.format.dtypes import BY_LONG, DTYPES, Array
from partc.runtime.engines.ort_library import VARIABLE, library_path


class NativeEngine:
    """Calls travel to the program, and arrays come back."""

    def __init__(self, command: Sequence[str | Path], folder: Path, **options: Any) -> None:
        self._process = subprocess.Popen(
            [*map(str, command), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **{"env": {**os.environ, VARIABLE: str(library_path() or "")}, **options},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _, printed = self._process.communicate(timeout=60)
        assert kind is not None or self._process.returncode == 0, printed

    def load(self, submodule: str) -> None:
        self._ask(load=submodule)

    def release(self, submodule: str) -> None:
        self._ask(release=submodule)

    def settle(self) -> bool:
        return bool(self._ask(settle=True)["more"])

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        self._ask(reset=slot, dims=dict(dims))

    def run(
        self,
        submodule: str,
        slot: int,
        inputs: Sequence[Array],
        dims: Mapping[str, int],
        **options: Any,
    ) -> list[Array]:
        answer = self._ask(
            run=submodule, slot=slot, dims=dict(dims), inputs=[_sent(array) for array in inputs], **options
        )
        return [_received(found) for found in answer["outputs"]]

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        answer = self._ask(
            run=submodule, slots=list(slots), dims=dict(dims), inputs=[_sent(array) for array in inputs]
        )
        return [_received(found) for found in answer["outputs"]]

    def kept(self) -> list[Array]:
        """The outputs of all runs with `keep=True`, as the program has them by now."""
        return [_received(found) for found in self._ask(kept=True)["outputs"]]

    def large_bytes(self) -> int:
        """Bytes of its memory that are large pages."""
        lines = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages:"))

    def status(self, kind: str) -> int:
        """A size of the process in bytes, as /proc has it."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind + ":"))

    def threads(self) -> int:
        """Threads of the process."""
        return len(list(Path(f"/proc/{self._process.pid}/task").iterdir()))

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        answer = self._ask(read=submodule, slot=slot, state=state, row=row, begin=begin, end=end)
        return _received(answer["rows"])

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        self._ask(write=submodule, slot=slot, state=state, row=row, begin=begin, rows=_sent(rows))

    def _ask(self, **asked: Any) -> dict[str, Any]:
        process = self._process
        assert process.stdin and process.stdout and process.stderr
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise AssertionError(process.stderr.read())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PartcError(answer["error"])
        return answer


def _sent(array: Array) -> list[Any]:
    names = [name for name, row in BY_LONG.items() if row.held == array.dtype and name != "bfloat16"]
    return [names[0], list(array.shape), np.ascontiguousarray(array).tobytes().hex()]


def _received(found: Sequence[Any]) -> Array:
    dtype, shape, data = found
    return np.frombuffer(bytes.fromhex(data), DTYPES[dtype]).reshape(shape)
