"""The formats that the compiler, the runner and every other runtime share: data and their codecs, no behaviour.

```
dims         sizes of tensors: numbers and expressions of symbols
dtypes       the table of element types
plain_files  files that somebody names or sends, read whole
json_text    the one reader of JSON, which is strict
digests      SHA-256 of files and of data, canonical JSON
safetensors  reader and writer of weight files
program      instructions; program_text their text, program_rules the checker
build        what a compile made and a re-plan cannot change: build.json; build_rules its checks
prompt_steps the steps of a prompt where there is code for certain numbers of rows
placement    what a re-plan changes: placement.json
reading      JSON into structs, with errors that name file and key
role         one device's view of a build and a placement
kernel_plan  the kernels of a compiled library in the order of a step: kernels.json; kernel_plan_rules its reader
files        the files of a folder, held against their digests
messages     one struct a message; message_parts the structs they hold, fields their common fields
frames       tensors in the frames of a message; codec: its header
document     the tables of docs/ and the JSON schemas, written from the structs
native       the structs and tables of the native runner, written from them too; native_types the types of C++
```

Needs `partc.errors`, the standard library, numpy and msgspec alone.
"""
