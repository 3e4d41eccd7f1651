"""Checkpoints that others have quantised: what each tensor of the model is made of, integer for integer.

| module | holds |
| --- | --- |
| `methods.py` | who quantised a checkpoint, by its config; what is not read is refused before anything is imported |
| `tensors.py` | the parts of each matrix, gathered (`q_proj.qweight`, `.qzeros`, `.scales`), and the matrix over them |
| `parts.py` | what the modules below get of a matrix, and the expressions that all of them write |
| `gptq.py` | `gptq`: 2, 3, 4 and 8 bits, groups, both conventions of zero points, act order |
| `awq.py` | `awq`: 4 bits, the order of `gemm` |
| `compressed.py` | `compressed-tensors`: packed integers, int8, float8 |
| `float8.py` | `fp8`, `fbgemm_fp8`, ModelOpt's FP8: scales for blocks, for rows, for a whole matrix |
| `mxfp4.py` | `mxfp4`: the experts of gpt-oss |
| `bitsandbytes.py` | `bitsandbytes`: NF4 and FP4, scales quantised again or not; int8 |

A matrix is an expression over its parts (`partc.ir.encodings`); nothing of it is unpacked here. A few small tensors are
read, because what they hold decides: zero points that are all the same, inputs that are in order.
"""
