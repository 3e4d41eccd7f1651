"""`partc.Ring`: the devices of a build, to generate with. `partc run` is written on what lies below it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, overload

from partc.api.build import Build
from partc.api.client_thread import ClientThread
from partc.api.generations import Answer, Generation, Piece, Stream
from partc.errors import RunError
from partc.runtime.client.launch import LocalSettings, launch_local
from partc.runtime.client.plain import sampling_of
from partc.runtime.client.prompts import Prompts, token_ids
from partc.runtime.client.query import Query
from partc.runtime.client.reach import reach_ring
from partc.runtime.client.stop_search import StopSearch
from partc.runtime.client.text import Tokenizer

if TYPE_CHECKING:
    from partc.api.conversations import Conversations
    from partc.format.dtypes import Array
    from partc.format.role import Role
    from partc.runtime.client.client import Client
    from partc.runtime.client.results import Result

PathLike = str | os.PathLike[str]
Prompt = str | Sequence[int] | None
"""A text, or token ids; None for a model that answers to a sound or a picture alone."""
Stop = str | int | Sequence[str | int]
"""Texts and token ids."""
Message = Mapping[str, Any]
"""`{"role": …, "content": …}`."""
Template = Mapping[str, Any]
_SAMPLING = ("temperature", "top_k", "top_p", "seed", "likely")


class Options(TypedDict, total=False):
    """How an answer is made; what is left out is greedy, and ends where the model ends it."""

    temperature: float
    """0 takes the most likely token; else logits are divided by it."""
    top_k: int
    """Draw among so many most likely tokens; 0: among all."""
    top_p: float
    """Draw among the most likely tokens whose probabilities reach this sum."""
    seed: int
    """Equal seeds draw equal tokens, on any ring of the build."""
    likely: int
    """Probabilities to tell with each token: its own, then those of the most likely ones; 0: none."""
    stop: Stop
    """Texts and token ids that end it; a stop text is no part of it."""
    ignore_eos: bool
    """Whether the model's own end tokens do not end it."""
    drafts: bool
    """Whether tokens may be guessed, which changes none of them; they are where it is left out."""
    expected: str | Sequence[int]
    """A text, or token ids, that the answer may look like: it comes sooner where it does."""
    inputs: Mapping[str, Array]
    """Tensors beside the prompt."""
    images: Sequence[PathLike]
    """Files of the pictures that the prompt is about."""
    sounds: Sequence[PathLike]
    """Files of sound, the same."""


class Ring:
    """The devices of a build: processes of this machine, or those that run already.

    ```
    with partc.Ring("build") as ring:
        print(ring.generate("Once upon a time", max_new_tokens=32).text)
    ```
    Any thread may use it, and requests of several are in flight together. Outside of the block there is no ring.
    """

    def __init__(
        self,
        build: PathLike | Build = "build",
        *,
        connect: str | None = None,
        insecure: bool = False,
        runner: Literal["native", "python"] | None = None,
        restart: bool = True,
        balance: bool = True,
        chat_template: PathLike | None = None,
        **settings: Any,
    ) -> None:
        """Say how to reach it; nothing is started before the block is entered.

        Args:
            build: the folder that `compile` wrote.
            connect: HOST:PORT of the source of running devices, or `auto`; None starts all devices here.
            insecure: neither keys nor encryption; loopback alone.
            runner: what runs the devices here; None: the native runner where the build has it.
            restart: start a device's runner again that dies.
            balance: move sub-modules while the ring runs, where that makes it faster (docs/balancing.md).
            chat_template: a file with a template of jinja2, instead of the model's own.
            settings: further fields of `partc.runtime.client.launch.LocalSettings`.

        Raises:
            BundleError: it is no build.
            RunError: there is no such runner.
        """
        if runner not in (None, "native", "python"):
            raise RunError(f"there is no runner {runner!r}", where="runner", hint="native, python, or None")
        self.build = build if isinstance(build, Build) else Build(build)
        self._folder = self.build.path
        self._settings = LocalSettings(insecure=insecure, runner=runner, restart=restart, **settings)
        self._connect, self._balance = connect, balance
        self._template = None if chat_template is None else Path(chat_template)
        self._thread: ClientThread | None = None
        self._role: Role | None = None
        self._conversations: Conversations | None = None
        self._device = self._folder / "devices" / self.build.source
        self._tokenizer = Tokenizer(self._device)

    def __enter__(self) -> Self:
        """Start the devices, or connect to them, and wait until the ring stands.

        Raises:
            RunError: it does not come to stand; the message is that of the device that ended.
        """
        thread = ClientThread(self._opened())
        self._role = thread.start().role
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the requests in flight and the devices that were started; may be called twice."""
        thread, self._thread = self._thread, None
        if self._conversations is not None:
            self._conversations.close()
            self._conversations = None
        if thread is not None:
            thread.close()

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompt: Prompt = None, max_new_tokens: int | None = None, **options: Unpack[Options]
    ) -> Generation: ...
    @overload
    def generate(
        self,
        prompt: Sequence[str] | Sequence[Sequence[int]],
        max_new_tokens: int | None = None,
        **options: Unpack[Options],
    ) -> list[Generation]: ...
    def generate(
        self,
        prompt: Prompt | Sequence[str] | Sequence[Sequence[int]] = None,
        max_new_tokens: int | None = None,
        **options: Unpack[Options],
    ) -> Generation | list[Generation]:
        """Generate, and wait for it.

        Args:
            prompt: text or token ids; a list of them is answered with a list, all in flight together.
            max_new_tokens: tokens of an answer at most; None: 64, fewer where there is no room for them.
            options: see `Options`.

        Raises:
            RunError: the model takes no prompts, an option is out of range, or the ring is gone.
        """
        one, prompts = _split(prompt)
        answers = [self.begin(each, max_new_tokens, **options) for each in prompts]
        found = [answer.whole.result() for answer in answers]
        return found[0] if one else found

    def stream(
        self, prompt: Prompt = None, max_new_tokens: int | None = None, **options: Unpack[Options]
    ) -> Stream:
        """Generate, and have the pieces as they come; arguments and errors are those of `generate`."""
        return Stream(lambda put: self.begin(prompt, max_new_tokens, put, **options))

    def chat(
        self,
        messages: Sequence[Message],
        max_new_tokens: int | None = None,
        template: Template | None = None,
        **options: Unpack[Options],
    ) -> Generation:
        """The assistant's next turn in a conversation, by the model's own chat template.

        Args:
            messages: `{"role": "user", "content": "…"}`, the first one first.
            max_new_tokens: as in `generate`.
            template: what the template takes besides: `{"tools": […]}` as in OpenAI's API, or others.
            options: see `Options`.

        Raises:
            RunError: the model has no chat template, or it refuses the messages; else as `generate`.
        """
        return self.begin_chat(messages, max_new_tokens, template, **options).whole.result()

    def chat_stream(
        self,
        messages: Sequence[Message],
        max_new_tokens: int | None = None,
        template: Template | None = None,
        **options: Unpack[Options],
    ) -> Stream:
        """The same, with the pieces as they come."""
        return Stream(lambda put: self.begin_chat(messages, max_new_tokens, template, put, **options))

    def encode(self, texts: Prompts) -> Mapping[str, Array]:
        """Outputs of a model that reads tokens and does not generate, for one text or a batch of them.

        Raises:
            RunError: the model is another kind, or the ring is gone.
        """
        self._refuse_generating()
        return self.submit(texts).result().outputs

    def run(
        self,
        inputs: Mapping[str, Array] | None = None,
        *,
        images: Sequence[PathLike] = (),
        sounds: Sequence[PathLike] = (),
    ) -> Mapping[str, Array]:
        """Outputs by name, of a model of tensors or of one that classifies pictures or sounds; raises as `encode`."""
        self._refuse_generating()
        given = inputs if inputs is not None else self._media(images, sounds)
        if not given:
            raise RunError("nothing is given", where="Ring.run", hint="give inputs, images or sounds")
        return self.submit(inputs=given).result().outputs

    def _refuse_generating(self) -> None:
        """Refuse a model whose answers are tokens."""
        _, role = self._standing()
        if role.model.generates:
            message = f"a model for {role.model.task} generates, and has no outputs of its own"
            raise RunError(message, where=role.model.name, hint="ring.generate(prompt)")

    def submit(
        self,
        prompts: Prompts = (),
        *,
        inputs: Mapping[str, Array] | None = None,
        **options: Any,
    ) -> Future[Result]:
        """Begin any request, several prompts as one batch among them; its result is to come.

        Args:
            prompts: texts or token ids; several make one batch.
            inputs: tensors instead of prompts, or beside them.
            options: further fields of `partc.runtime.client.query.Query`: `max_new_tokens`, `sampling`, `trace`.

        Raises:
            RunError: the ring is closed, or there is no such option. What else is wrong is the exception of the result.
        """
        thread, _ = self._standing()
        _refuse_unknown(options, [field.name for field in fields(Query)])
        return thread.submit(Query(prompts, inputs=inputs, **options), lambda tokens: None).outcome

    def begin(
        self,
        prompt: Prompt = None,
        max_new_tokens: int | None = None,
        on_piece: Callable[[Piece | None], None] = lambda piece: None,
        **options: Unpack[Options],
    ) -> Answer:
        """Begin an answer: what `generate`, `stream` and `AsyncRing` stand on.

        `on_piece` is called on a thread of the ring with every piece, then with None; the other arguments and the
        errors are those of `generate`.
        """
        thread, role = self._standing()
        _refuse_unknown(options, [*Options.__annotations__, "max_new_tokens"])
        if not role.model.generates:
            hint = "ring.run(inputs) for tensors, ring.encode(texts) for texts"
            raise RunError(
                f"a model for {role.model.task} does not generate", where=role.model.name, hint=hint
            )
        stops = _listed(options.get("stop", ()))
        inputs = options.get("inputs") or self._media(options.get("images", ()), options.get("sounds", ()))
        texts = [each for each in stops if isinstance(each, str)]
        ids: list[list[int]] = []
        if prompt is not None:
            ids, _ = token_ids(prompt, role.model, self._tokenizer, with_media=bool(inputs))
        if len(ids) > 1:
            hint = "Ring.generate takes a list and answers with one; AsyncRing has asyncio.gather"
            raise RunError("several prompts have several answers", where="prompt", hint=hint)
        first, stream = ids[0] if ids else [], None
        if self._tokenizer.is_there:
            stream = self._tokenizer.stream(role.model.before_answer(first))
        elif texts:
            hint = "give token ids as `stop`"
            raise RunError("this build has no tokenizer, so no text ends an answer", where="stop", hint=hint)
        answer = Answer(first, stream, StopSearch(texts), on_piece)
        query = Query(
            ids,
            max_new_tokens,
            sampling_of({key: options[key] for key in _SAMPLING if key in options}),  # type: ignore[literal-required]
            [each for each in stops if not isinstance(each, str)],
            options.get("ignore_eos", False),
            inputs,
            drafts=options.get("drafts", True),
            expected=self._expected(options.get("expected", ())),
        )
        flight = thread.submit(query, answer.take)
        answer.cancel = partial(thread.cancel, flight)
        flight.outcome.add_done_callback(answer.settle)
        return answer

    def begin_chat(
        self,
        messages: Sequence[Message],
        max_new_tokens: int | None = None,
        template: Template | None = None,
        on_piece: Callable[[Piece | None], None] = lambda piece: None,
        **options: Unpack[Options],
    ) -> Answer:
        """The same for the assistant's next turn; raises as `chat`."""
        from partc.api.conversations import Conversations

        self._standing()
        if self._conversations is None:
            self._conversations = Conversations(self._device / "tokenizer", self._tokenizer, self._template)
        ids = self._conversations.prompt(messages, template or {})
        options["stop"] = [*_listed(options.get("stop", ())), *self._conversations.ends]
        return self.begin(ids, max_new_tokens, on_piece, **options)

    def _expected(self, given: str | Sequence[int]) -> Sequence[int]:
        """The tokens of what an answer may look like."""
        if not isinstance(given, str):
            return given
        if not self._tokenizer.is_there:
            raise RunError("this build has no tokenizer", where="expected", hint="give token ids")
        return self._tokenizer.encode_whole([given])[0]

    def _standing(self) -> tuple[ClientThread, Role]:
        if self._thread is None or self._role is None:
            raise RunError("the ring is not open", hint="with partc.Ring(build) as ring: …")
        return self._thread, self._role

    def _media(self, images: Sequence[PathLike], sounds: Sequence[PathLike]) -> Mapping[str, Array] | None:
        """The tensors of pictures or sounds."""
        from partc.api.media import read_pictures, read_sounds

        _, role = self._standing()
        if images:
            return read_pictures([Path(file) for file in images], role, self._folder)
        return read_sounds([Path(file) for file in sounds], role, self._folder) if sounds else None

    @contextmanager
    def _opened(self) -> Iterator[Client]:
        """The client, on the thread that owns it."""
        settings = self._settings
        if self._connect is not None:
            with (
                reach_ring(
                    self._folder, self._connect, insecure=settings.insecure, linger_s=settings.linger_s
                ) as client,
                self._balanced(client),
            ):
                yield client
            return
        with (
            launch_local(self._folder, settings) as ring,
            ring.client() as client,
            self._balanced(client),
        ):
            yield client

    def _balanced(self, client: Client) -> AbstractContextManager[None]:
        from partc.balance.balancing import read_balancing

        balancing = read_balancing(self._folder, _no_move, goes_on=True) if self._balance else None
        return nullcontext() if balancing is None else balancing.beside(client)

    def __repr__(self) -> str:
        state = "closed" if self._thread is None else "open"
        return f"<partc.Ring of {str(self._folder)!r}, {' → '.join(self.build.devices)}: {state}>"


def _no_move(order: object, outcome: object) -> None:
    """Nobody is told of moves; `partc watch` shows them."""


def _refuse_unknown(options: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse unknown options: a misspelt one would be ignored silently."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"options: {', '.join(known)}"
            raise RunError(f"there is no option `{name}`", where=name, hint=hint)


def _listed(stop: Stop) -> list[str | int]:
    if isinstance(stop, str | Integral):
        return [stop]
    if not isinstance(stop, Iterable):
        raise RunError(
            f"{stop!r} is not a text, a token id or a list of them", where="stop", hint="stop=['\\n', 2]"
        )
    return list(stop)


def _split(prompt: Prompt | Sequence[str] | Sequence[Sequence[int]]) -> tuple[bool, list[Prompt]]:
    """Whether it is one prompt, and all of them."""
    if (
        prompt is None
        or isinstance(prompt, str)
        or (len(prompt) and not isinstance(prompt[0], str | Sequence))
    ):
        return True, [prompt]  # type: ignore[list-item]
    return False, list(prompt)  # type: ignore[arg-type]
