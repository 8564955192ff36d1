"""What plans call beside Redis: models, with a cache of vectors, rerankers, callbacks. Their errors become ours."""

from __future__ import annotations

import contextvars
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from contextvars import ContextVar
from functools import cache, partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import LONG, Call, compute
from langchain_workingmem.errors import EmbeddingError, ModelError, OptionError, WorkingMemError
from langchain_workingmem.options import EMBEDDING_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    import numpy as np
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from langchain_workingmem._engine.plan import Plan, T

    Vectors = np.ndarray[Any, Any]


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call in a thread, for which the end of the process does not wait."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it goes on if the caller gives up

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever reads the future raises it
            future.set_exception(error)

    # no pool: the end of the process would wait for its threads. The context carries the callbacks
    Thread(target=contextvars.copy_context().run, args=(work,), name="workingmem-waiting", daemon=True).start()
    return future


class _Kind(NamedTuple):
    """A kind of model, with the errors of one that fails or is late."""

    error: type[WorkingMemError]
    name: str
    more_time: str  # the option that gives it more

    def failed(self, error: Exception) -> WorkingMemError:
        problem = f"{self.name} failed ({type(error).__name__}: {error})"
        return self.error(problem, remedy="check it, its key and its network")

    def late(self, seconds: float | None) -> WorkingMemError:
        remedy = f"check it, or give it more time with {self.more_time}"
        return self.error(f"{self.name} did not answer within {seconds:g} s", remedy=remedy)

    async def answer(self, ask: Callable[[], Awaitable[T]], seconds: float | None) -> T:
        """Wait for what a model answers, for at most so many seconds."""
        import asyncio

        try:
            async with asyncio.timeout(seconds) as timer:
                return await ask()
        except Exception as error:  # a model may raise anything
            raise (self.late(seconds) if timer.expired() else self.failed(error)) from error


_EMBEDDING = _Kind(EmbeddingError, "the embedding model", "RecallOptions(embedding_timeout=...)")
_CHAT = _Kind(ModelError, "the chat model", "timeout=...")
_RERANKER = _Kind(ModelError, "the reranker", "RecallOptions(embedding_timeout=...)")


MANY_TEXTS = 500  # texts whose vectors are read beside the event loop
SECONDS_A_TEXT = 1.0  # a large model on a slow processor needs less
_TOLERANCE = 1e-6  # between the numbers of two equal vectors


class Embedder:
    """Embeds texts, with an LRU cache; questions and documents share vectors where a model embeds them alike."""

    def __init__(
        self, embeddings: Embeddings | None = None, cache_size: int = 0, timeout: timedelta = EMBEDDING_TIMEOUT
    ) -> None:
        self.embeddings = embeddings
        self._timeout = timeout.total_seconds()
        self._size = cache_size
        self._cache: OrderedDict[tuple[bool, str], Vectors] = OrderedDict()  # by (is a question, text)
        self._lock = Lock()
        declared = getattr(embeddings, "embeds_alike", None)
        self._alike: bool | None = declared if isinstance(declared, bool) else None  # None: not known yet

    def embed(self, texts: Sequence[str], *, query: bool = False, fresh: bool = False) -> Plan[Vectors]:
        """Embed texts, questions with `query`, as an array (texts, dimensions). `fresh`: past the cache."""
        import numpy as np

        model, known = self.embeddings, dict[str, "Vectors"]()
        if model is None:
            raise OptionError("semantic recall needs an embedding model", remedy="pass embeddings=... to Memory")
        with self._lock:
            for text in () if fresh else texts:
                key = (query and not self._alike, text)
                if key in self._cache:
                    self._cache.move_to_end(key)
                    known[text] = self._cache[key]
        missing = [text for text in dict.fromkeys(texts) if text not in known]

        def ask() -> Sequence[Sequence[float]]:
            try:
                return [model.embed_query(text) for text in missing] if query else model.embed_documents(missing)
            except Exception as error:  # a model may raise anything
                raise _EMBEDDING.failed(error) from error

        async def asked() -> Sequence[Sequence[float]]:
            if query:
                return [await model.aembed_query(text) for text in missing]
            return await model.aembed_documents(missing)

        if missing:
            seconds = self._timeout + SECONDS_A_TEXT * len(missing)
            answer: Any = yield Call(ask, partial(_EMBEDDING.answer, asked, seconds))
            accept = partial(self._accept, missing, answer, known, query=query)
            vectors = yield from compute(accept, len(missing) * LONG // MANY_TEXTS)
            if len(missing) == len(texts):
                return vectors
            known |= zip(missing, vectors, strict=True)
        return np.array([known[text] for text in texts])

    def dimensions(self) -> Plan[int]:
        """Embed a text to learn the dimensions of the model."""
        vectors = yield from self.embed(["How large are the vectors?"], fresh=True)
        return int(vectors.shape[1])

    def _accept(self, texts: Sequence[str], answer: Any, known: Mapping[str, Vectors], *, query: bool) -> Vectors:
        """Check what the model has given for texts, and cache it, beside what was `known` of others.

        A text that was embedded both ways tells whether the model embeds questions and documents alike.
        """
        import numpy as np

        try:
            with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are refused below
                vectors = np.array(answer, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise _EMBEDDING.failed(error) from error
        with self._lock:
            is_array = vectors.ndim == 2 and len(vectors) == len(texts) and vectors.size > 0
            if not is_array or any(len(vector) != vectors.shape[1] for vector in known.values()):
                self._cache.clear()  # it is unknown which size is wrong
                problem = f"the embedding model gave an array of shape {vectors.shape} for {len(texts)} texts"
                raise EmbeddingError(problem, remedy="check the model: its vectors must be flat and of one size")
            if not np.isfinite(vectors).all():
                raise EmbeddingError("the embedding model gave a vector with NaN or infinity", remedy="check the model")
            if next(map(len, self._cache.values()), vectors.shape[1]) != vectors.shape[1]:
                self._cache.clear()  # the model has another size now
            for text, vector in zip(texts, vectors, strict=True) if self._size else ():
                copy, twin = vector.copy(), self._cache.get((not query, text))  # a view would keep the whole array
                # every model may embed an empty text as zeros
                if self._alike is None and twin is not None and copy.any():
                    self._alike = bool(np.allclose(copy, twin, rtol=0, atol=_TOLERANCE))
                    if self._alike:
                        self._cache = OrderedDict(((False, text), cached) for (_, text), cached in self._cache.items())
                self._cache[query and not self._alike, text] = copy
                self._cache.move_to_end((query and not self._alike, text))
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)
        return vectors


def name_of(embeddings: Embeddings) -> str:
    """Return the model's own name, else the name of its class."""
    for attribute in ("model", "model_name", "model_id"):
        if isinstance(name := getattr(embeddings, attribute, None), str) and name:
            return name
    return type(embeddings).__qualname__


# ---------------------------------------------------------------------- chat models and rerankers


class AskedModel(NamedTuple):
    """Which model a call asks, and what for."""

    model: BaseChatModel
    run: Mapping[str, Any]


def ask(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    seconds: float | None = None,
    run: Mapping[str, Any] | None = None,
) -> Call[AIMessage]:
    """Ask a chat model; `ModelError` if it fails or takes longer. `run`: `run_name` and `metadata` of callbacks."""
    options: dict[str, Any] = {"config": dict(run)} if run else {}

    def call() -> AIMessage:
        invoke = partial(model.invoke, messages, **options)
        try:
            if seconds is None:
                return invoke()
            future = in_thread(invoke)
            if wait([future], seconds).done:
                return future.result()
        except Exception as error:  # a model may raise anything
            raise _CHAT.failed(error) from error
        raise _CHAT.late(seconds)

    async def acall() -> AIMessage:
        return await _CHAT.answer(partial(model.ainvoke, messages, **options), seconds)

    return Call(call, acall, AskedModel(model, run or {}))


def made_by_name(argument: str, make: Callable[[], T]) -> T:
    """Make a model by its name; `OptionError` if that fails."""
    try:
        return make()
    except ImportError as error:
        extra = "[openai,agents]'" if "openai:" in argument else "[agents]' and the provider's package"
        remedy = f"pip install 'langchain-workingmem{extra}"
        raise OptionError(f"{argument}: {error}", remedy=remedy) from error
    except Exception as error:  # no key, an unknown provider: each package has its own errors
        remedy = "check the name and its API key, or pass the model as an object"
        raise OptionError(f"{argument} cannot be made ({error})", remedy=remedy) from error


def chat_model_by_name(name: str) -> BaseChatModel:
    """Make a chat model from any name of langchain's `init_chat_model`, such as "openai:<model>"."""

    def make() -> BaseChatModel:
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)

    return made_by_name(f"model={name!r}", make)


def rerank(
    reranker: BaseDocumentCompressor, question: str, documents: Sequence[Document], seconds: float
) -> Call[list[Document]]:
    """Let a reranker order documents, and drop some; `ModelError` if it fails, or an async call exceeds `seconds`."""

    def call() -> list[Document]:
        try:
            return list(reranker.compress_documents(documents, question))
        except Exception as error:  # a reranker may raise anything
            raise _RERANKER.failed(error) from error

    async def reranked() -> list[Document]:
        return list(await reranker.acompress_documents(documents, question))

    async def acall() -> list[Document]:
        return await _RERANKER.answer(reranked, seconds)

    return Call(call, acall)


# ---------------------------------------------------------------------- what a provider refuses

_REFUSED = frozenset({400, 413, 422})  # HTTP: bad request, too large, not processable
_REFUSALS = ("ContextOverflowError", "ModelInvalidRequestError")  # of LangChain, which may have no status
_STATUS = ("status_code", "code", "http_status", "status")
# Too long a prompt in words of OpenAI, Anthropic, Google, Bedrock, Mistral, Cohere, xAI, Groq, Z.ai, vLLM, llama.cpp
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|(?:prompt|input) (?:is )?too long|too many (?:\w+ )?tokens|token limit"
    r"|maximum (?:prompt|input) length|(?:prompt|input)s?\b[^.]{0,80}\b(?:tokens?|length)\b[^.]{0,80}(?:exceed|only supports|must)"
    r"|prompt exceeds|inputs`? must have less than|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)


def is_refusal(error: BaseException) -> bool:
    """Tell whether a provider refused for good: the first status of the causes is 400, 413 or 422, or too long."""
    return _refusal(error) is not None


def is_overflow(error: BaseException) -> bool:
    """Tell whether a request was refused as too long for the model's window. A bare 413 may mean anything."""
    if (cause := _refusal(error)) is None:
        return False
    words = f"{cause} {getattr(cause, 'code', '')} {getattr(cause, 'body', '')}"
    return type(cause).__name__ == _REFUSALS[0] or _TOO_LONG.search(words) is not None


def _refusal(error: BaseException) -> BaseException | None:
    """Return the first of an error and its causes that says what happened, if it says that a provider refused."""
    cause: BaseException | None = error
    for _ in range(20):  # causes may be a circle
        if cause is None or type(cause).__name__ in _REFUSALS:
            return cause
        if (status := _status(cause)) is not None:
            return cause if status in _REFUSED else None
        cause = cause.__cause__
    return None


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    values: list[Any] = [getattr(source, name, None) for source in (error, response) for name in _STATUS]
    if isinstance(response, Mapping) and isinstance(metadata := response.get("ResponseMetadata"), Mapping):  # botocore
        values.append(metadata.get("HTTPStatusCode"))
    for value in values:  # which may be anything: OpenAI's `code` is a word, and gRPC's a method
        status = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{3}", value) else value
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
            return int(status)
    return None


# What `telemetry.instrument` puts around each plan that a memory runs: the plan, its name, and the name of the memory.
plan_wrapper: Callable[[Plan[Any], str, str], Plan[Any]] | None = None
# What `telemetry` is told of the results of recall inside a plan
recall_listener: ContextVar[Callable[[Any], object] | None] = ContextVar("recall_listener", default=None)


def traced(plan: Plan[T], query: str) -> Plan[T]:
    """Show recall as a retriever run to callbacks and LangSmith; return the plan itself if nobody listens."""
    runs = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    is_heard = runs is not None and runs.get() is not None  # in a run; None while a thread imports it
    if not is_heard and ("langsmith.run_trees" in sys.modules or _is_traced()):  # not imported to learn that (0.3 s)
        from langsmith.utils import tracing_is_enabled

        is_heard = bool(tracing_is_enabled())
    # the usual case outside of a chain; configuring a manager takes time
    return _with_run(plan, query, is_heard=is_heard) if is_heard or plan_wrapper is not None else plan


@cache  # as LangSmith reads the environment once
def _is_traced() -> bool:
    return any(os.environ.get(f"{name}_TRACING{end}") for name in ("LANGSMITH", "LANGCHAIN") for end in ("", "_V2"))


def _with_run(plan: Plan[Any], query: str, *, is_heard: bool) -> Plan[Any]:
    from langchain_core.runnables import config

    name = "semantic_recall"

    def begin() -> Any:
        manager = config.get_callback_manager_for_config(config.ensure_config())
        return manager.handlers and manager.on_retriever_start({"name": name}, query, name=name)

    async def abegin() -> Any:
        manager = config.get_async_callback_manager_for_config(config.ensure_config())
        return manager.handlers and await manager.on_retriever_start({"name": name}, query, name=name)

    run = (yield from Call(begin, abegin)) if is_heard else None
    try:
        result = yield from plan
    except Exception as error:
        if run:
            end = partial(run.on_retriever_error, error)
            yield from Call(end, end)  # a run that an async caller has begun has async methods
        raise
    if note := recall_listener.get():
        note(result)
    if run:
        end = partial(run.on_retriever_end, result.to_documents())
        yield from Call(end, end)
    return result
