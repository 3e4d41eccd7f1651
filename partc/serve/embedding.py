"""One request for embeddings on its way: a job at the ring for each text, and the vectors that come of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass

from partc.errors import PartcError
from partc.format.dtypes import Array
from partc.runtime.client.query import Query
from partc.runtime.client.results import Result
from partc.serve.errors import api_error
from partc.serve.job import Job
from partc.serve.metrics import Metrics
from partc.serve.pooling import Pooling
from partc.serve.replies import Json
from partc.serve.rings import Rings

HIDDEN = "last_hidden_state"
"""Output of an encoder: the vectors of its tokens, [batch, sequence, hidden]."""


@dataclass(frozen=True)
class Embedding:
    """The vectors of some texts. Used in the event loop alone."""

    prompts: Sequence[Sequence[int]]
    """Token ids."""
    rings: Rings
    pooling: Pooling
    most_at_once: int
    """Texts that the ring has at once; the others wait here."""
    metrics: Metrics

    async def vectors(self) -> list[Array]:
        """One for each text, in order.

        Raises:
            ApiError: a job has failed; the others are cancelled.
        """
        turns = asyncio.Semaphore(self.most_at_once)
        self.metrics.prompt_tokens += sum(map(len, self.prompts))
        tasks = [asyncio.create_task(self._vector(prompt, turns)) for prompt in self.prompts]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _vector(self, prompt: Sequence[int], turns: asyncio.Semaphore) -> Array:
        async with turns:
            ended: asyncio.Future[Result | PartcError] = asyncio.get_running_loop().create_future()
            job = Job(
                query=Query([prompt]),
                on_token=lambda token, likely: None,
                on_end=lambda outcome: None if ended.done() else ended.set_result(outcome),
            )
            self.metrics.in_flight += 1
            self.rings.submit(job)
            try:
                outcome = await ended
            finally:
                self.metrics.in_flight -= 1
                if not ended.done() or ended.cancelled():
                    self.rings.cancel(job)
        if isinstance(outcome, PartcError):
            raise api_error(outcome)
        return self.pooling.vector(outcome.outputs[HIDDEN][0])


def embeddings_json(vectors: Sequence[Array], model: str, tokens: int, *, packed: bool) -> Json:
    """The answer; `packed`: each vector as its float32 in base64, little-endian."""
    entries = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if packed else vector.tolist()}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": entries, "model": model, "usage": usage}


def _packed(vector: Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
