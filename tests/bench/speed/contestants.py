"""The contestants: what each loads, in which formats it has the model, what has to be installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from tests.bench.random_models import MODELS
from tests.bench.speed.make import (
    Bundle,
    Checkpoint,
    Files,
    Genai,
    Gguf,
    IkGguf,
    OpenVino,
    StoredBundle,
)
from tests.bench.speed.places import Cell

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
    others: tuple[str, ...] = ()
    """The formats beside which it has models that are no Llamas."""

    @property
    def missing(self) -> list[str]:
        """The packages in `needs` that are not installed."""
        return [module for module in self.needs if find_spec(module) is None]

    def takes_part(self, cell: Cell) -> bool:
        """Whether there is such a figure: several processes are measured with one thread each."""
        formats = self.formats if MODELS[cell.place.name].family == "llama" else self.others
        return cell.kind in formats and (self.processes == 1 or cell.threads == 1)


TVM, ORT = "partc on tvm", "partc on ort"
TVM_CACHE = f"{TVM}, cache of int8"
ORT_64, ORT_128 = (f"{ORT}, blocks of {block}" for block in (64, 128))
RING, TWO, THREE = "partc, ring of 1", "partc, cut in 2", "partc, cut in 3"
ORT_GENAI, OPENVINO, TRANSFORMERS = "onnxruntime-genai", "OpenVINO", "transformers"
LLAMA_CPP, LLAMA_RPC = "llama.cpp", "llama.cpp, cut in 2 (RPC)"
LLAMA_Q4_K, LLAMA_IQ4_NL = "llama.cpp, Q4_K", "llama.cpp, IQ4_NL"
IK_Q4_0, IK_Q4_K = "ik_llama.cpp", "ik_llama.cpp, Q4_K"
FILES = {"Q4_0": "int4", "Q4_K_S": "int4", "Q8_0": "int8", "Q6_K": "int8"}
"""Files of ik_llama.cpp that partc keeps as they are → the format beside which they stand."""
STORED = {kind: f"{TVM}, {kind} file" for kind in FILES}
IK_STORED = {kind: f"ik_llama.cpp, {kind}" for kind in ("Q8_0", "Q6_K")}
LLAMAS = (LLAMA_CPP, LLAMA_Q4_K, LLAMA_IQ4_NL)
"""All that llama.cpp has in one piece; the fastest of them is the one to compare with."""

_PARTC = (("onnxruntime",), "pip install -e '.[compile,ort]'")
_PARTC_TVM = (("tvm",), "pip install -e '.[compile,tvm,link]'")
_CPP = (("llama_cpp", "gguf"), f"{LLAMA} llama-cpp-python gguf")
_IK = (("ik_llama_cpp", "gguf"), "pip install ik-llama-cpp-python gguf")
_PLAIN_GGUF = Gguf({"float32": "F32", "int8": "Q8_0", "int4": "Q4_0"})
CONTESTANTS = {
    one.name: one
    for one in (
        Contestant(TVM, "partc_engine", Bundle("tvm"), ALL, *_PARTC_TVM, others=ALL),
        Contestant(TVM_CACHE, "partc_engine", Bundle("tvm", cache="int8"), ("int4",), *_PARTC_TVM),
        Contestant(ORT, "partc_engine", Bundle("ort"), ALL, *_PARTC, others=ALL),
        Contestant(ORT_64, "partc_engine", Bundle("ort", block=64), ("int4",), *_PARTC),
        Contestant(ORT_128, "partc_engine", Bundle("ort", block=128), ("int4",), *_PARTC),
        Contestant(RING, "partc_ring", Bundle("ort"), ALL, *_PARTC),
        Contestant(TWO, "partc_ring", Bundle("ort", 2), ALL, *_PARTC, 2),
        Contestant(THREE, "partc_ring", Bundle("ort", 3), ALL, *_PARTC, 3),
        Contestant(ORT_GENAI, "genai", Genai(), ALL, ("onnxruntime_genai",), "pip install onnxruntime-genai"),
        Contestant(OPENVINO, "openvino", OpenVino(), ALL, ("openvino",), "pip install openvino"),
        Contestant(LLAMA_CPP, "llama", _PLAIN_GGUF, ALL, *_CPP, others=ALL),
        Contestant(LLAMA_Q4_K, "llama", Gguf({"int4": "Q4_K_S"}), ("int4",), *_CPP, others=("int4",)),
        Contestant(LLAMA_IQ4_NL, "llama", Gguf({"int4": "IQ4_NL"}), ("int4",), *_CPP, others=("int4",)),
        Contestant(IK_Q4_0, "ik", IkGguf({"int4": "Q4_0"}), ("int4",), *_IK),
        Contestant(IK_Q4_K, "ik", IkGguf({"int4": "Q4_K_S"}), ("int4",), *_IK),
        *(
            Contestant(
                STORED[kind],
                "partc_engine",
                StoredBundle("tvm", file=IkGguf({beside: kind})),
                (beside,),
                (*_PARTC_TVM[0], *_IK[0]),
                _PARTC_TVM[1],
            )
            for kind, beside in FILES.items()
        ),
        *(Contestant(IK_STORED[kind], "ik", IkGguf({"int8": kind}), ("int8",), *_IK) for kind in IK_STORED),
        Contestant(LLAMA_RPC, "llama", _PLAIN_GGUF, ALL, *_CPP, 2),
        Contestant(
            TRANSFORMERS, "hf", Checkpoint(), ("float32",), ("transformers", "torch"), _PARTC[1], others=ALL
        ),
    )
}
