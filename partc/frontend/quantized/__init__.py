"""Checkpoints that others have quantised: what each tensor of the model is made of, integer for integer.

`methods.py` tells from a config who quantised a checkpoint, and refuses what is not read before anything is imported;
`tensors.py` gathers the parts of each matrix (`q_proj.qweight`, `.qzeros`, `.scales`) and gives the matrix as an
expression over them (`partc.ir.encodings`), made by the module of the method:

| module | methods of `quantization_config` |
| --- | --- |
| `gptq.py` | `gptq`: 2, 3, 4 and 8 bits, groups, both conventions of zero points, act order |
| `awq.py` | `awq`: 4 bits, the order of `gemm` |
| `compressed.py` | `compressed-tensors`: packed integers, int8, float8 |
| `float8.py` | `fp8`, `fbgemm_fp8`, ModelOpt's FP8: scales for blocks, for rows, for a whole matrix |
| `mxfp4.py` | `mxfp4`: the experts of gpt-oss |
| `bitsandbytes.py` | `bitsandbytes`: NF4 and FP4, scales quantised again or not; int8 |

Nothing of a matrix is unpacked here. A few small tensors are read, because what they hold decides: zero points that
are all the same, inputs that are in order.
"""
