"""The TVM target: a device's part as code, compiled ahead of time.

The code holds kernels, and a plan beside it says in which order they run. For a processor it is a shared library, for a
GPU what its driver takes.

A part flows through these files in this order:

| file | does |
| --- | --- |
| `target.py` | the target: checks the operators, picks the entries, emits |
| `loading.py` | TVM imported without torch |
| `checks.py` | refuses operators, forms of them, types and options that there is no code for |
| `padding.py` | refuses what may not run in an entry larger than the step |
| `specialise.py` | the graph of one entry: every size a number, shape arithmetic folded away |
| `step_costs.py` | the cost of a step by its rows: what padding and more steps cost |
| `quantized.py` | nodes on quantised weights as nodes on panels of bytes, and on activations made bytes once |
| `widen.py` | half precision: what lies in memory stays so, everything is computed in float32 |
| `layout.py` | which weights are packed, and the expression that packs them while they are streamed |
| `panels.py` | keys in panels of 16, as attention reads them |
| `fuse.py` | nodes joined with their neighbours, where a processor's kernel does both |
| `blocks.py` | equal layers, so that each distinct one is compiled once |
| `builder.py` | graphs to one Relax module: a function an entry, kernels shared by all |
| `operators/` | ONNX operator to Relax: every operator that the target knows, correct on every machine |
| `kernels/` | what is worth more than Relax's own code: products, attention, normalisation, activations |
| `kernels/instructions/` | sums of products of bytes for each instruction set, and the choice of one |
| `machine.py` | what the code is compiled for: triple, processor, features, GPU |
| `toolchain.py` | the linker and NVIDIA's compiler: found, or named with how to get them |
| `linker.py` | linkers: which there are for a platform, tried on an empty library, and used |
| `process.py` | other makers' tools as processes, with a time limit |
| `pipeline.py` | our passes from Relax to allocations, views and calls of kernels |
| `bound_places.py` | places that are data, kept inside their tensors |
| `wide_math.py` | functions of the C library in double precision: the same bits in every runner |
| `kernel_plan.py` | lowered Relax to the plan of its kernels, every tensor with its place |
| `objects.py` | kernels to object files, on all cores, kept from one command to the next |
| `loop/` | the code of a library besides its kernels: the loop over a plan, threads |
| `link.py` | a Relax module to a shared library, looked through before it is put in its place |
| `gpu/` | in place of the last three, for GPUs: launches, and code for CUDA or OpenCL |
| `elf.py` | what a shared library needs and leaves undefined, to check what was linked |
"""

from __future__ import annotations

from targets.tvm.target import TvmTarget

__all__ = ["TvmTarget"]
