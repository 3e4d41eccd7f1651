"""The formats that the compiler, the runner and every other runtime share: data and their codecs, no behaviour.

```
dims               sizes of tensors: numbers and expressions of symbols
dtypes, layouts    the table of element types; alignment in memory, and states inside of an engine
plain_files, first_bytes    files that somebody names or sends, read whole; other kinds told by their first bytes
address            HOST:PORT, and what is wrong with one
json_text          the one reader of JSON, which is strict
digests            SHA-256 of files and of data, canonical JSON
safetensors        reader and writer of weight files
gguf               reader of the headers of llama.cpp's files
tasks, media       purposes of models, by the names of the hub; names of the tensors of a picture or a sound
program, program_text, program_rules    instructions; their text; the checker
build, build_rules    what a compile made and a re-plan cannot change: build.json; its checks
prompt_steps       the steps of a prompt where there is code for certain numbers of rows
state_kinds        kinds of states: what a step writes of one, and what follows from that
placement          what a re-plan changes: placement.json
contingencies      placements/without-DEVICE.json: what follows the loss of a device
plan, fleet        plan.json: the answer to a planning problem; the rings of a fleet
reading            JSON into structs, with errors that name file and key
role               one device's view of a build and a placement
kernel_plan, kernel_plan_rules    the kernels of a compiled library in the order of a step: kernels.json; its reader
gpu_code           the code of GPUs beside a plan: names of files, the digest that ties both together
names              names of files in a device's folder that several rooms know; the folders of a build
files              the files of a folder, held against their digests
readings, status   readings of sensors and limits; what devices and a ring say of themselves
capabilities, logs    what a ring can do, and why not; the events of a log
messages           one struct a message
message_parts, fields    the structs that messages hold; their common fields
frames, codec      tensors in the frames of a message; the bytes of its header
document           the tables of docs/ and the JSON schemas, written from the structs
native, native_types    the structs and tables of the native runner, written from them too; the types of C++
```

Needs `partc.errors`, the standard library, numpy and msgspec alone.
"""
