"""The formats that the compiler, the runner and every other runtime share: data and their codecs, no behaviour.

```
dims         sizes of tensors: numbers and expressions of symbols
dtypes       the table of element types
plain_files  files that somebody names or sends, read whole
json_text    the one reader of JSON, which is strict
digests      SHA-256 of files and of data, canonical JSON
safetensors  reader and writer of weight files
program      instructions, their text, and the checker
build        what a compile made and a re-plan cannot change
placement    what a re-plan changes: epoch, stages, programs, peers
messages     one struct a message, and the codec
```

Needs the standard library, numpy and msgspec alone.
"""
