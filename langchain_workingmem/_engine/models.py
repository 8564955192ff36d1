"""Calls of the caller's chat model and reranker. Whatever these raise becomes one of our errors."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine import tracing
from langchain_workingmem._engine.background import settle
from langchain_workingmem._engine.plan import Call
from langchain_workingmem.errors import ModelError, RerankerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage


class Asked(NamedTuple):
    """Which model a call asks, and what for."""

    model: BaseChatModel
    run: Mapping[str, Any]


def ask(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    seconds: float | None = None,
    run: Mapping[str, Any] | None = None,
) -> Call[AIMessage]:
    """Ask a chat model, for at most so many seconds; `ModelError` if it fails or takes longer.

    `run` has `run_name` and `metadata` for callbacks: who pays for what.
    """
    run = run or {}
    options: dict[str, Any] = {"config": dict(run)} if run else {}

    def call() -> AIMessage:
        asking = functools.partial(model.invoke, messages, **options)
        try:
            if seconds is None:
                return asking()
            answer: Future[AIMessage] = _in_time(asking, seconds)
            if answer.done():
                return answer.result()
        except Exception as error:  # a model may raise anything
            raise _model_error(error) from error
        raise _too_slow(seconds)

    async def acall() -> AIMessage:
        try:
            async with asyncio.timeout(seconds) as waiting:
                return await model.ainvoke(messages, **options)
        except Exception as error:  # a model may raise anything
            raise (_too_slow(seconds) if waiting.expired() else _model_error(error)) from error

    return Call(call, acall, Asked(model, run))


def _in_time(call: Callable[[], Any], seconds: float) -> Future[Any]:
    """Make a call of the caller's code, and wait for it; it is not done if that takes longer."""
    asked: Future[Any] = Future()
    inside = contextvars.copy_context().run  # which carries the callbacks
    # no pool: the end of the process would wait for its threads
    Thread(target=inside, args=(settle, asked, call), name="workingmem-model", daemon=True).start()
    wait([asked], seconds)
    return asked


def _too_slow(seconds: float | None) -> ModelError:
    seen = f"the chat model did not answer within {seconds:g} s"
    return ModelError(seen, remedy="check the model and its network, or give it more time with timeout=...")


def _model_error(error: Exception) -> ModelError:
    seen = f"the chat model failed ({type(error).__name__}: {error})"
    return ModelError(seen, remedy="check the model, its key and its network")


def rerank(
    reranker: BaseDocumentCompressor, question: str, documents: Sequence[Document], seconds: float
) -> Call[list[Document]]:
    """Let a reranker order documents, and drop some; `RerankerError` if it fails, or an async call takes longer than `seconds`."""

    def call() -> list[Document]:
        try:
            return list(reranker.compress_documents(documents, question, callbacks=tracing.child()))
        except Exception as error:  # a reranker may raise anything
            raise _reranker_error(error) from error

    async def acall() -> list[Document]:
        try:
            async with asyncio.timeout(seconds) as waiting:
                return list(await reranker.acompress_documents(documents, question, callbacks=tracing.child()))
        except Exception as error:  # a reranker may raise anything
            if waiting.expired():
                raise RerankerError(
                    f"the reranker did not answer within {seconds:g} s",
                    remedy="check it, or give it more time with RecallOptions(embedding_timeout=...)",
                ) from error
            raise _reranker_error(error) from error

    return Call(call, acall)


def _reranker_error(error: Exception) -> RerankerError:
    remedy = "check the reranker, or leave RecallOptions(reranker=...) out"
    return RerankerError(f"the reranker failed ({type(error).__name__}: {error})", remedy=remedy)
