"""A model of transformers as an ONNX graph: it is built without its weights, traced, and written by torch's exporter.

`export.py` is the way in. `tracing.py` is what every trace stands on: the cache and the masks that a model is given
instead of its own. What a step brings besides token ids has a wrapper each: `encoder_decoder.py`, `multimodal.py`,
`tensors.py`. `recurrent.py`, `experts.py`, `complex_pairs.py`, `last_rows.py` change what a model computes into what
can be traced; `alignment.py`, `sizes.py` and `decompositions.py` rewrite the traced program, and `statements.py` says
which line of the model's code makes each of its results. Pictures and sound among tokens: `media.py` asks the
preprocessor, `axes.py` the model for its positions, `placeholders.py` writes features over tokens, `known_values.py`
computes what does not depend on a request.
"""
