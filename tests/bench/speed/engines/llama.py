"""llama.cpp through llama-cpp-python: in this process, or cut over its RPC servers.

Everything that is not said is llama.cpp's default: a cache in float16, flash attention where it thinks it pays,
weights repacked for this processor when they are loaded (RPC servers do not do that).
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.speed.engines.contract import PROMPT, Engine, Stepping
from tests.bench.speed.make import SEQUENCE
from tests.bench.speed.outputs import NEXT, Array, prompt

PATIENCE_S = 20.0
CPU = 0
"""`GGML_BACKEND_DEVICE_TYPE_CPU` of ggml-backend.h."""


class Stepper:
    """One model in this process."""

    def __init__(self, path: Path, threads: int, module: str = "llama_cpp") -> None:
        """`module` has llama.cpp's functions by their names in C."""
        self._llama: Any = import_module(module)
        self._llama.llama_backend_init()
        model = self._model_settings()
        model.n_gpu_layers = -1  # all; where there are no devices, none
        self._model = self._llama.llama_model_load_from_file(str(path).encode(), model)
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        self.grows = self._has_states()
        settings = self._llama.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = SEQUENCE, PROMPT, PROMPT
        settings.n_threads = settings.n_threads_batch = threads
        self._context = self._llama.llama_init_from_model(self._model, settings)
        vocabulary = self._llama.llama_model_get_vocab(self._model)
        self._vocabulary = self._llama.llama_vocab_n_tokens(vocabulary)

    def _model_settings(self) -> Any:
        return self._llama.llama_model_default_params()

    def _has_states(self) -> bool:
        """Whether it has states, which cannot be cut back."""
        asked = (self._llama.llama_model_is_recurrent, self._llama.llama_model_is_hybrid)
        return any(ask(self._model) for ask in asked)

    def clear(self) -> None:
        """See `contract.Stepper`, for this and the others."""
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self._context), False)

    def take(self, tokens: int) -> None:
        for start in range(0, tokens, PROMPT):
            self._decode(list(prompt(min(PROMPT, tokens - start))))

    def step(self) -> None:
        self._decode([NEXT])

    def logits(self) -> Array:
        return np.ctypeslib.as_array(self._llama.llama_get_logits_ith(self._context, -1), (self._vocabulary,))

    def back(self, context: int) -> None:
        self._llama.llama_memory_seq_rm(self._llama.llama_get_memory(self._context), 0, context, -1)

    def _decode(self, tokens: list[int]) -> None:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        if self._llama.llama_decode(self._context, self._llama.llama_batch_get_one(array, len(tokens))):
            raise SystemExit("llama.cpp cannot compute a step")
        self._llama.llama_get_logits_ith(self._context, -1)  # waits for them


class Cut(Stepping):
    """Two servers of one thread each; their processor time counts as well."""

    def __init__(self, path: Path, servers: int) -> None:
        self._processes = []
        for _ in range(servers):
            port = _free_port()
            command = [sys.executable, "-m", "tests.bench.speed.engines.llama", str(port)]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.PIPE))
            _await_port(port)
            add_server(f"127.0.0.1:{port}")
        super().__init__(Stepper(path, 1), [process.pid for process in self._processes])

    def close(self) -> None:
        """End the servers."""
        for process in self._processes:
            process.kill()
            process.wait()


def add_server(endpoint: str) -> None:
    """Make the devices of a server known to llama.cpp, which then puts layers there."""
    library = _library()
    add, register = library.ggml_backend_rpc_add_server, library.ggml_backend_register
    add.restype, add.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    register.restype, register.argtypes = None, [ctypes.c_void_p]
    register(add(endpoint.encode()))


def serve(port: int) -> None:
    """An RPC server of one thread, as ggml-rpc-server is, on the processor; ends with standard input."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    library = _library()
    device, start = library.ggml_backend_dev_by_type, library.ggml_backend_rpc_start_server
    device.restype, device.argtypes = ctypes.c_void_p, [ctypes.c_int]
    start.restype, size = None, ctypes.c_size_t
    start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, size, size, ctypes.POINTER(ctypes.c_void_p)]
    start(f"127.0.0.1:{port}".encode(), None, 1, 1, (ctypes.c_void_p * 1)(device(CPU)))


def _library() -> Any:
    """libllama, through which the functions of the very ggml that it is linked with are found.

    A wheel holds libggml under two names, as two files; the other one would have devices of its own.
    """
    return import_module("llama_cpp.llama_cpp")._lib


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _await_port(port: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Cut(path, processes) if processes > 1 else Stepping(Stepper(path, threads))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
