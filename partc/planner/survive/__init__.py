"""Surviving the loss of a device: where copies of its weights lie, and the plan of those that are left.

| file | in short |
| --- | --- |
| `options.py` | the plans that could follow a loss, with the copies that each takes |
| `copies.py` | one option for each loss, so that all copies together take the least disk |
| `losses.py` | the answer: copies, the best plan that they allow for each loss, and its words |
| `mirrors.py` | caches that another device keeps, too, where link and memory have room |
| `groups.py` | the same where devices share stages |
| `words.py` | the words for a loss that is survived |
| `model.py` | all of it for the plan of a model |
"""
