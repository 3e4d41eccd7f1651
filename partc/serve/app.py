"""Routes of the endpoint."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from partc.errors import PartcError
from partc.format.role import Role
from partc.runtime.client.text import Tokenizer
from partc.serve.access import IGNORED, App, Limits, Receive, Send, error_response, read_bytes
from partc.serve.bodies import (
    BodyKind,
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    MoveBody,
    Texts,
    read_body,
    texts_of,
    token_ids_of,
)
from partc.serve.browsers import Browsers, Scope
from partc.serve.embedding import Embedding, embeddings_json
from partc.serve.errors import RETRY_S, ApiError, api_error, unsupported
from partc.serve.generation import Asked, Generation, too_slow
from partc.serve.live import Live
from partc.serve.metrics import CONTENT_TYPE, Metrics
from partc.serve.moves import Moves
from partc.serve.pooling import Pooling
from partc.serve.prompts import check_text, room_behind
from partc.serve.replies import Json, Shape, event, model_json
from partc.serve.request_log import OUTCOME
from partc.serve.ring import State
from partc.serve.ring_metrics import ring_lines
from partc.serve.rings import Rings
from partc.serve.template import Chat, Renderer

PAGE = Path(__file__).with_name("page.html")
_STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
_ABSENT = {
    "/v1/embeddings": "this model generates text, and has no embeddings: serve an encoder",
    "/v1/completions": "this model does not generate text: use /v1/embeddings",
    "/v1/chat/completions": "this model does not generate text: use /v1/embeddings",
    "/v1/responses": "this server has no responses: use /v1/chat/completions",
    "/v1/messages": "this server has OpenAI's API: use /v1/chat/completions",
}
"""Paths that clients may ask for → the reason why they are not there."""
_T = TypeVar("_T")


def may_guess(body: ChatBody | CompletionBody, live: Live) -> bool:
    """Whether tokens of a request may be guessed: it allows it, and no device is to be spared work."""
    return body.drafts is not False and not body.deterministic and not live.spares_work


@dataclass
class Endpoint:
    """Endpoint of one model: its rings and its clients."""

    role: Role
    name: str
    """Name of the model."""
    tokenizer: Tokenizer
    chat: Chat
    limits: Limits
    temperature: float
    """That of requests that give none."""
    rings: Rings
    renderer: Renderer
    live: Live
    browsers: Browsers
    moves: Moves | None = None
    """Who moves sub-modules for clients; None: nobody."""
    ignores_unknown: bool = False
    """Whether fields that this server does not have are ignored, and told in a header."""
    drafts: bool = True
    """Whether tokens may be guessed."""
    pooling: Pooling = field(default_factory=Pooling)
    """The vector of a text, of those of its tokens."""
    created: int = field(default_factory=lambda: int(time.time()))
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def state(self) -> State:
        """State of the rings together."""
        return self.rings.state

    def app(self) -> App:
        """The routes, as an ASGI application."""
        routes = [
            Route("/", self.page),
            Route("/ring", self.look),
            Route("/health", self.health),
            Route("/metrics", self.show_metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/", self.models),
            Route("/v1/models/{name:path}", self.model),
            *([] if self.moves is None else [Route("/ring/move", self.move, methods=["POST"])]),
            *self._answering(),
        ]
        handlers: Mapping[Any, Any] = {
            PartcError: _on_error,
            HTTPException: _on_http_error,
            Exception: _on_bug,
        }
        made: App = Starlette(routes=routes, exception_handlers=handlers)
        return made

    def _answering(self) -> list[Route]:
        """The routes that the model's task has."""
        if not self.role.model.generates:
            return [Route("/v1/embeddings", self.embed, methods=["POST"])]
        return [
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.converse, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        """The page."""
        return HTMLResponse(self.browsers.with_token(PAGE.read_bytes()), headers=PAGE_HEADERS)

    async def look(self, request: Request) -> Any:
        """The state of the ring, as it changes, for the page."""
        if self.live.is_full:
            raise ApiError("as many look at the ring as may", status=429, kind="rate_limit_error")
        return RingStream(self.live)

    async def move(self, request: Request) -> Response:
        """`POST /ring/move`: what a move of sub-modules would change, or the move itself."""
        assert self.moves is not None, "else there is no such route"
        self.browsers.check_move(request.headers)
        body = await self._body(request, MoveBody)
        return JSONResponse(await self.moves.answer(body))

    async def health(self, request: Request) -> Response:
        """Whether the ring stands; never asks it."""
        if self.state == "ready":
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": self.state}, 503, headers={"retry-after": str(RETRY_S)})

    async def show_metrics(self, request: Request) -> Response:
        """All counters; never asks the ring."""
        self.metrics.is_ready = self.state == "ready"
        self.metrics.begun_again = self.rings.begun_again
        self.metrics.waiting = max(0, self.metrics.in_flight - self.rings.most)
        self.metrics.rings = self.rings.states
        return Response(self.metrics.text(ring_lines(self.live.known())), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """The one model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """A model by its name."""
        self._check_name(request.path_params["name"])
        return JSONResponse(self._model())

    async def complete(self, request: Request) -> Any:
        """`POST /v1/completions`."""
        body = await self._body(request, CompletionBody)
        self._check_name(body.model)
        prompts = await self._token_ids(body.prompt, "prompt")
        return await self._answer(request, body, prompts, body.most_tokens, is_chat=False)

    async def converse(self, request: Request) -> Any:
        """`POST /v1/chat/completions`."""
        body = await self._body(request, ChatBody)
        self._check_name(body.model)
        loop, renderer = asyncio.get_running_loop(), self.renderer
        text = await loop.run_in_executor(
            renderer.threads, renderer.render, body.messages, body.tools, body.chat_template_kwargs
        )
        prompts = await asyncio.to_thread(self.tokenizer.encode_whole, [text])
        return await self._answer(request, body, prompts, body.most_tokens, is_chat=True)

    async def embed(self, request: Request) -> Any:
        """`POST /v1/embeddings`."""
        body = await self._body(request, EmbeddingBody)
        self._check_name(body.model)
        if body.dimensions is not None:
            raise unsupported("dimensions", "this server gives vectors as the model has them; leave it out")
        prompts = await self._token_ids(body.input, "input")
        for prompt in prompts:
            check_text(self.role, prompt, "input")
        at_once = min(len(prompts), self.rings.most)
        self._admit(at_once)
        embedding = Embedding(prompts, self.rings, self.pooling, at_once, self.metrics)
        vectors = await self._within_time(request, embedding.vectors())
        if vectors is None:
            return Response(status_code=499)
        tokens, packed = sum(map(len, prompts)), body.encoding_format == "base64"
        return JSONResponse(embeddings_json(vectors, self.name, tokens, packed=packed))

    async def _body(self, request: Request, kind: type[BodyKind]) -> BodyKind:
        """The body of a request, checked; the answer tells which of its fields were ignored."""
        data = await read_bytes(request, self.limits.most_body_bytes)
        read = read_body(data, kind, ignores_unknown=self.ignores_unknown)
        request.scope[IGNORED] = read.ignored
        return read.body

    async def _token_ids(self, given: Texts, param: str) -> Sequence[Sequence[int]]:
        """The token ids of a field that has texts or token ids."""
        prompts, texts = token_ids_of(given, param), texts_of(given)
        if texts:
            prompts = await asyncio.to_thread(self.tokenizer.encode, texts)
        if not prompts:
            raise ApiError("nothing is given", param=param)
        return prompts

    async def _answer(
        self,
        request: Request,
        body: ChatBody | CompletionBody,
        prompts: Sequence[Sequence[int]],
        most_tokens: int | None,
        *,
        is_chat: bool,
    ) -> Any:
        """The answer to checked prompts: whole, or a stream."""
        self._admit(len(prompts) * body.choices)
        param = "messages" if is_chat else "prompt"
        asked = Asked(
            shape=Shape.fresh(is_chat, self.name, int(time.time()), self.role.plan_id[:12]),
            prompts=prompts,
            choices=body.choices,
            new_tokens=[room_behind(self.role, prompt, most_tokens, param) for prompt in prompts],
            sampling=body.sampling(self.temperature),
            stops=body.stops,
            ends=self._ends(is_chat),
            wants_usage=body.wants_usage,
            alternatives=body.alternatives,
            start_tokens=self.role.model.start_tokens,
            reuses=not body.deterministic,
            drafts=self.drafts and may_guess(body, self.live),
            expected=await self._expected(body),
        )
        generation = Generation(asked, self.rings, self.tokenizer, self.metrics)
        if body.stream:
            return Stream(self, generation)
        outcome = await self._within_time(request, self._whole(generation))
        return Response(status_code=499) if outcome is None else JSONResponse(outcome)

    async def _expected(self, body: ChatBody | CompletionBody) -> Sequence[int]:
        """The tokens of what an answer may look like."""
        if body.prediction is None:
            return ()
        found = await asyncio.to_thread(self.tokenizer.encode_whole, [body.prediction.text])
        return found[0]

    async def _whole(self, generation: Generation) -> Json:
        async with generation.running():
            return await generation.whole()

    async def _within_time(self, request: Request, work: Coroutine[Any, Any, _T]) -> _T | None:
        """The result of `work`; None where the client went away. Its outcome is counted."""
        outcome: _T | None
        try:
            async with asyncio.timeout(self.limits.request_s):
                outcome = await unless_gone(request.receive, work)
        except TimeoutError:
            self.metrics.requests["timeout"] += 1
            raise too_slow(self.limits.request_s) from None
        except Exception:
            self.metrics.requests["failed"] += 1
            raise
        self.metrics.requests["cancelled" if outcome is None else "ok"] += 1
        return outcome

    def _admit(self, answers: int) -> None:
        """Refuse what the ring cannot take within sensible time."""
        if self.state in ("starting", "ended"):
            message = "the ring does not stand yet" if self.state == "starting" else "the server ends"
            raise ApiError(message, status=503, kind="server_error", code="ring_unavailable")
        most = self.rings.most + self.limits.most_waiting
        if answers > most:
            self.metrics.requests["refused"] += 1
            raise ApiError(f"{answers} answers are asked for, and this server takes {most} at a time")
        if self.metrics.in_flight + answers > most:
            self.metrics.requests["refused"] += 1
            message = f"{self.metrics.in_flight} answers are under way or wait, at most {most} may (--queue)"
            raise ApiError(message, status=429, kind="rate_limit_error", code="queue_full")

    def _ends(self, is_chat: bool) -> frozenset[int]:
        """The model's end tokens; in a conversation also those with which its template ends a turn."""
        turns = [self.tokenizer.token(text) for text in self.chat.ends] if is_chat else []
        return frozenset([*self.role.model.eos_token_ids, *(token for token in turns if token is not None)])

    def _check_name(self, name: str | None) -> None:
        """Refuse another model; a request without a name means the one that is there."""
        if name not in (None, self.name):
            message = f"the model `{name}` does not exist: this server has `{self.name}`"
            raise ApiError(message, status=404, param="model", code="model_not_found")

    def _model(self) -> Json:
        has_template = self.chat.template is not None
        model = self.role.model
        embeds = not model.generates
        return model_json(
            self.name, self.created, model.max_sequence, has_template=has_template, embeds=embeds
        )


@dataclass
class Stream:
    """A response in server-sent events, as an ASGI application."""

    endpoint: Endpoint
    generation: Generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the answer ends, or the client goes away."""
        outcome = await unless_gone(receive, self._send(send))
        scope[OUTCOME] = outcome or "cancelled"
        self.endpoint.metrics.requests[outcome or "cancelled"] += 1

    async def _send(self, send: Send) -> str:
        """Send all; the outcome."""
        await _begin(send)
        outcome = "ok"
        try:
            async with asyncio.timeout(self.endpoint.limits.request_s), self.generation.running():
                async for line in self.generation.lines():
                    await _send_text(send, line)
        except TimeoutError:
            outcome = "timeout"
            await _send_text(send, event(too_slow(self.endpoint.limits.request_s).body()))
        except ApiError as error:
            outcome = "failed"
            await _send_text(send, event(error.body()))
        except Exception:
            outcome = "failed"
            traceback.print_exc()
            await _send_text(send, event(_bug().body()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return outcome


@dataclass
class RingStream:
    """The state of the ring in server-sent events, until the client goes away."""

    live: Live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send for ever."""
        await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await _begin(send)
        async with aclosing(self.live.lines()) as lines:
            async for line in lines:
                await _send_text(send, line)


PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
}
"""The page loads nothing from any other host, and no other page shows it in a frame."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T | None:
    """The result of `work`, which is cancelled when the client goes away; None then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in _STREAM.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_text(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _on_error(request: Request, error: PartcError) -> Response:
    return error_response(api_error(error))


async def _on_bug(request: Request, error: Exception) -> Response:
    """The traceback goes to the server's stderr, and none of it to a client."""
    return error_response(_bug())


def _bug() -> ApiError:
    message = "this is a bug of partc; the server's output has the details"
    return ApiError(message, status=500, kind="server_error", code="internal_error")


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    if error.status_code == 405:
        return error_response(ApiError(f"{path} takes no {request.method}", status=405))
    message = _ABSENT.get(path, f"there is no {path}")
    return error_response(ApiError(message, status=error.status_code, code="not_found"))
