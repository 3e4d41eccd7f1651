"""`partc.AsyncRing`: a ring for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from partc.api.generations import Answer, Generation, Piece
from partc.api.ring import Message, Options, Prompt, Ring, Template

if TYPE_CHECKING:
    from partc.format.dtypes import Array
    from partc.runtime.client.prompts import Prompts


class AsyncRing:
    """The devices of a build, awaited.

    ```
    async with partc.AsyncRing("build") as ring:
        one, two = await asyncio.gather(ring.generate("One"), ring.generate("Two"))
        async for piece in ring.stream("Once upon a time"):
            print(piece.text, end="", flush=True)
    ```
    A task that is cancelled cancels its request. The options are those of `Ring` and its methods.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        """Say how to reach it, as `Ring`; nothing is started yet."""
        self._ring = Ring(*args, **options)

    async def __aenter__(self) -> Self:
        """Start the devices, or connect to them; raises as `Ring`."""
        await asyncio.to_thread(self._ring.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._ring.close)

    async def generate(
        self, prompt: Prompt = None, max_new_tokens: int | None = None, **options: Unpack[Options]
    ) -> Generation:
        """The answer to one prompt; see `Ring.generate`. `asyncio.gather` has several in flight together."""
        return await self._whole(partial(self._ring.begin, prompt, max_new_tokens, **options))

    async def chat(
        self,
        messages: Sequence[Message],
        max_new_tokens: int | None = None,
        template: Template | None = None,
        **options: Unpack[Options],
    ) -> Generation:
        """The assistant's next turn; see `Ring.chat`."""
        return await self._whole(
            partial(self._ring.begin_chat, messages, max_new_tokens, template, **options)
        )

    def stream(
        self, prompt: Prompt = None, max_new_tokens: int | None = None, **options: Unpack[Options]
    ) -> AsyncGenerator[Piece, None]:
        """The pieces of an answer as they come; see `Ring.stream`."""
        return self._pieces(partial(self._ring.begin, prompt, max_new_tokens, **options))

    def chat_stream(
        self,
        messages: Sequence[Message],
        max_new_tokens: int | None = None,
        template: Template | None = None,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Piece, None]:
        """The pieces of the assistant's next turn; see `Ring.chat_stream`."""
        return self._pieces(partial(self._ring.begin_chat, messages, max_new_tokens, template, **options))

    async def encode(self, texts: Prompts) -> Mapping[str, Array]:
        """See `Ring.encode`."""
        return (await asyncio.wrap_future(self._ring.submit(texts))).outputs

    async def run(self, inputs: Mapping[str, Array] | None = None, **files: Any) -> Mapping[str, Array]:
        """See `Ring.run`."""
        return await asyncio.to_thread(partial(self._ring.run, inputs, **files))

    async def _whole(self, begin: Callable[[], Answer]) -> Generation:
        answer = await asyncio.to_thread(begin)  # reading pictures and texts takes a while
        try:
            return await asyncio.wrap_future(answer.whole)
        except asyncio.CancelledError:
            answer.cancel()
            raise

    async def _pieces(self, begin: Callable[..., Answer]) -> AsyncGenerator[Piece, None]:
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Piece | None]()

        def put(piece: Piece | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        answer = await asyncio.to_thread(begin, on_piece=put)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            answer.whole.result()
        finally:
            if not answer.whole.done():
                answer.cancel()
