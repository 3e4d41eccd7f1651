"""GGUF files of llama.cpp as checkpoints: config, tokenizer and tensors come from one file.

`file.py` reads the header; `architectures.py` makes a config of transformers of its metadata, by a table;
`names.py` says which of its tensors make which parameters; `tokenizer.py` writes its tokenizer as tokenizer.json;
`folder.py` puts config and tokenizer beside a link to the file, so that all else reads one more checkpoint folder.
"""
