"""A request as one value, and what can be said of it before it travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.message_parts import Sampling
from partc.format.messages import Submit
from partc.format.role import Role
from partc.runtime.client.plain import flag, plain_sampling, token_list, whole
from partc.runtime.client.prompts import Prompts, default_tokens, token_ids
from partc.runtime.client.text import TextStream, Tokenizer
from partc.runtime.core.liveness import step_s
from partc.runtime.core.source.inputs import (
    check_placeholders,
    check_prompts,
    check_tensors,
    padded,
    specs_of,
    with_start,
)

GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Query:
    """A request for tokens or outputs.

    A request that begins again is the same query with the tokens that are known by then (`behind`). They are never a
    part of the prompt: an encoder-decoder reads its prompt as a source, and draws are counted from the prompt's end.
    """

    prompts: Prompts = ()
    """One or several; several make one batch."""
    max_new_tokens: int | None = None
    """Tokens of each sequence at most, the known ones included; None: as many as `default_tokens` says."""
    sampling: Sampling = GREEDY
    """The choice of tokens; a draw depends on the seed and on the position of the token alone."""
    stop: Sequence[int] = ()
    """Token ids that end a sequence, besides the model's own."""
    ignore_eos: bool = False
    """Whether the model's own do not."""
    inputs: Mapping[str, Array] | None = None
    """Tensors instead of prompts, for models that do not read tokens; beside a prompt, the picture or the sound among
    its tokens."""
    trace: bool = False
    """Whether the tensors that cross each link are returned."""
    reuse: bool = False
    """Whether to go on behind the rows of an earlier request that began alike, and to leave those of this one."""
    drafts: bool = True
    """Whether steps may take guessed tokens; none of the tokens depends on it."""
    expected: Sequence[int] = ()
    """Tokens that the answer may look like, or parts of it: guesses are taken from them, too."""
    known: Sequence[Sequence[int]] = ()
    """Tokens of each sequence that are known from an earlier life of this request: they are computed, and not told."""

    def behind(self, tokens: Sequence[int]) -> Query:
        """The same request of one sequence, which goes on behind these tokens of its answer."""
        return replace(self, known=(tuple(tokens),) if tokens else ())


@dataclass(frozen=True, slots=True)
class Checked:
    """A query in the numbers of its model."""

    query: Query
    ids: list[list[int]]
    """Token ids of each prompt."""
    new_tokens: int
    """Tokens of an answer at most; 0 for a model that does not generate."""
    arrays: Mapping[str, Array]
    texts: Sequence[Sequence[int]]
    """The prompts whose answers are wanted as text."""

    def submit(self, ticket: bytes, role: Role) -> Submit:
        """The message that begins it."""
        query, drafts = self.query, self.query.drafts and role.guesses
        return Submit(
            ticket=ticket,
            prompts=tuple(map(tuple, self.ids)),
            max_new_tokens=self.new_tokens,
            sampling=query.sampling,
            stop=tuple(query.stop),
            ignore_eos=query.ignore_eos,
            trace=query.trace,
            values=specs_of(self.arrays, role.types),
            known=tuple([tuple(map(int, row)) for row in query.known]),
            reuse=query.reuse,
            drafts=drafts,
            expected=self._expected(role) if drafts else (),
        )

    def _expected(self, role: Role) -> tuple[int, ...]:
        """What the answer may look like, as far as there is room for one: prompt and answer share a header's limit."""
        room = role.model.max_sequence - max(map(len, self.ids), default=0)
        return tuple([int(token) for token in self.query.expected[: max(0, room)]])

    def frames(self) -> list[memoryview]:
        """The frames of that message."""
        return [to_frame(array) for array in self.arrays.values()]

    def streams(self, role: Role, tokenizer: Tokenizer) -> list[TextStream]:
        """The streams that turn answers to texts, pictures or sounds into text."""
        model = role.model
        if not model.generates:
            return []
        prompts = self.texts
        if self.arrays and not self.ids and tokenizer.is_there:
            prompts = [[] for _ in next(iter(self.arrays.values()))]
        return [tokenizer.stream(model.before_answer(prompt)) for prompt in prompts]

    def expected_s(self, role: Role) -> float:
        """Seconds that its longest step may take by the plan."""
        sizes = [len(prompt) for prompt in self.ids] or [array.size for array in self.arrays.values()]
        return step_s(role.predicted, "prefill", max(len(self.ids), 1), max(sizes, default=1))


def checked(query: Query, role: Role, tokenizer: Tokenizer) -> Checked:
    """A query whose prompts are token ids.

    Raises:
        RunError: it cannot be right, or is more than the plan allows.
    """
    query = _plain(query)
    given = {} if query.inputs is None else query.inputs
    arrays = {name: np.asarray(array) for name, array in given.items()}
    ids, are_texts = token_ids(query.prompts, role.model, tokenizer, with_media=bool(arrays))
    asked = query.max_new_tokens
    count = default_tokens(role.model, ids) if asked is None else asked
    _check(ids, arrays, count, role)
    return Checked(query, ids, count, arrays, ids if are_texts else [])


def _plain(query: Query) -> Query:
    """The same with plain values.

    Raises:
        RunError: one is of another type, or out of range; names it.
    """
    if not isinstance(query.inputs, Mapping | None):
        raise RunError(f"{query.inputs!r} is no mapping of names to arrays", where="inputs")
    most = query.max_new_tokens
    return replace(
        query,
        max_new_tokens=None if most is None else whole(most, "max_new_tokens"),
        sampling=plain_sampling(query.sampling),
        stop=token_list(query.stop, "stop"),
        expected=token_list(query.expected, "expected"),
        ignore_eos=flag(query.ignore_eos, "ignore_eos"),
        trace=flag(query.trace, "trace"),
        reuse=flag(query.reuse, "reuse"),
        drafts=flag(query.drafts, "drafts"),
    )


def _check(ids: list[list[int]], arrays: dict[str, Array], max_new_tokens: int, role: Role) -> None:
    """Refuse requests that cannot be right, before they travel."""
    if not ids and not arrays:
        raise RunError(
            "nothing is asked: there is neither a prompt nor a tensor", hint="give a prompt, or inputs"
        )
    if ids or not arrays:
        check_prompts(ids, max_new_tokens, role)
        check_placeholders(ids, arrays, role)
    if not arrays:
        return
    if ids:
        check_tensors({**padded(ids, role), **arrays}, role)
        return
    lengths = {"length"} - set(role.inputs) if role.has_step_inputs else set()
    given = {name: array for name, array in arrays.items() if name not in lengths}
    check_tensors(with_start(given, role), role)
