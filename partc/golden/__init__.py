"""Golden files of a user's own models: what partc made of them, kept as text, and compared with what it makes now.

| file | content |
| --- | --- |
| `config.py` | golden.yaml: models, devices, and what to keep of them |
| `origin.py` | what a record was made from and by: settings, weights, versions, sources, the outcome of every pass |
| `making.py` | makes a record: graph, weights, plan, bundle, tokens, cost |
| `record.py` | the files of a record |
| `tokens.py` | answers, and the first token in which two differ |
| `causes.py` | whose doing a change is |
| `checking.py` | a record beside the one that is kept |
| `reports.py` | the outcome as text, Markdown, JUnit, and annotations of GitHub |
"""
