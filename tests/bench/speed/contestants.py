"""The contestants: what each loads, in which formats it has the model, what has to be installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from tests.bench.speed.make import BUNDLE, CHECKPOINT, GENAI, GGUF, Files

ALL = ("float32", "int8", "int4")
LLAMA = (
    "CMAKE_ARGS='-DGGML_NATIVE=ON -DGGML_RPC=ON -DLLAVA_BUILD=OFF' pip install --no-binary llama-cpp-python"
)


@dataclass(frozen=True)
class Contestant:
    """One row of the tables."""

    name: str
    engine: str
    """The module in `tests.bench.speed.engines`."""
    files: Files
    formats: tuple[str, ...] = ALL
    needs: tuple[str, ...] = ()
    """Modules that must be there."""
    install: str = ""
    """The command that installs them."""
    processes: int = 1
    """Each of one thread, if there are several."""
    block: int | None = None
    """The block of int4, where it is not the usual one."""

    @property
    def missing(self) -> list[str]:
        """The packages in `needs` that are not installed."""
        return [module for module in self.needs if find_spec(module) is None]

    def takes_part(self, kind: str, threads: int) -> bool:
        """Whether there is such a figure: several processes are measured with one thread each."""
        return kind in self.formats and (self.processes == 1 or threads == 1)

    def stored(self, kind: str) -> str:
        """The format as files are named: `int4`, `int4-128`."""
        return kind if self.block is None else f"{kind}-{self.block}"


UNCUT, RING, TWO, THREE = "partc, uncut", "partc, ring of 1", "partc, cut in 2", "partc, cut in 3"
UNCUT_64, UNCUT_128 = (f"{UNCUT}, blocks of {block}" for block in (64, 128))
ORT_GENAI, LLAMA_CPP, LLAMA_RPC = "onnxruntime-genai", "llama.cpp", "llama.cpp, cut in 2 (RPC)"
TRANSFORMERS = "transformers"
_ORT, _PARTC = ("onnxruntime",), "pip install 'partc[compile,ort]'"
_CPP = ("llama_cpp", "gguf")
CONTESTANTS = {
    one.name: one
    for one in (
        Contestant(UNCUT, "partc_engine", BUNDLE, ALL, _ORT, _PARTC),
        Contestant(UNCUT_64, "partc_engine", BUNDLE, ("int4",), _ORT, _PARTC, block=64),
        Contestant(UNCUT_128, "partc_engine", BUNDLE, ("int4",), _ORT, _PARTC, block=128),
        Contestant(RING, "partc_ring", BUNDLE, ALL, _ORT, _PARTC),
        Contestant(TWO, "partc_ring", BUNDLE, ALL, _ORT, _PARTC, 2),
        Contestant(THREE, "partc_ring", BUNDLE, ALL, _ORT, _PARTC, 3),
        Contestant(ORT_GENAI, "genai", GENAI, ALL, ("onnxruntime_genai",), "pip install onnxruntime-genai"),
        Contestant(LLAMA_CPP, "llama", GGUF, ALL, _CPP, f"{LLAMA} llama-cpp-python gguf"),
        Contestant(LLAMA_RPC, "llama", GGUF, ALL, _CPP, f"{LLAMA} llama-cpp-python gguf", 2),
        Contestant(TRANSFORMERS, "hf", CHECKPOINT, ("float32",), ("transformers", "torch"), _PARTC),
    )
}
