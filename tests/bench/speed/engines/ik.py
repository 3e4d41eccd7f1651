"""ik_llama.cpp through ik-llama-cpp-python, whose wheel is for AVX2: a fork of llama.cpp with kernels of its own.

Weights are repacked for this processor when they are loaded, as its manual advises; all else is its default.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from tests.bench.speed.engines.contract import Engine, Stepping
from tests.bench.speed.engines.llama import Stepper

_FUNCTIONS = "ik_llama_cpp._ctypes_api"


class _Stepper(Stepper):
    def __init__(self, path: Path, threads: int) -> None:
        super().__init__(path, threads, _FUNCTIONS)
        library, numbers = self._llama._lib, [ctypes.c_int32] * 3
        self._batch, self._cut = library.llama_batch_get_one, library.llama_kv_cache_seq_rm
        self._batch.restype = self._llama.llama_batch
        self._batch.argtypes = [ctypes.POINTER(ctypes.c_int32), *numbers]
        self._cut.argtypes = [ctypes.c_void_p, *numbers]
        self._filled = 0

    def clear(self) -> None:
        self._llama.llama_kv_cache_clear(self._context)
        self._filled = 0

    def back(self, context: int) -> None:
        self._cut(self._context, 0, context, -1)
        self._filled = context

    def _decode(self, tokens: list[int]) -> None:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self._batch(array, len(tokens), self._filled, 0)
        if self._llama.llama_decode(self._context, batch):
            raise SystemExit("ik_llama.cpp cannot compute a step")
        self._filled += len(tokens)
        self._llama.llama_get_logits_ith(self._context, -1)  # waits for them

    def _model_settings(self) -> Any:
        settings = super()._model_settings()
        settings.repack_tensors = True
        return settings

    def _has_states(self) -> bool:
        return False  # it is asked for Llamas alone


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(path, threads))
