"""Calls the caller's chat model and reranker. Whatever they raise becomes one of our errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from langchain_workingmem._engine.effects import Ask, Rerank
from langchain_workingmem.errors import ModelError, RerankerError

_REMEDY = "check the reranker, or leave RecallOptions(reranker=...) out"


def call(effect: Ask | Rerank, callbacks: Any) -> Any:
    """Return the answer of a chat model, or what a reranker returns, whose runs are children of `callbacks`."""
    return _ask(effect) if isinstance(effect, Ask) else _rerank(effect, callbacks)


async def acall(effect: Ask | Rerank, callbacks: Any) -> Any:
    """Async twin of `call`, with a timeout for a reranker."""
    return await (_aask(effect) if isinstance(effect, Ask) else _arerank(effect, callbacks))


def _ask(effect: Ask) -> Any:
    try:
        return effect.model.invoke(effect.messages)
    except Exception as error:  # a model may raise anything
        raise _model_error(error) from error


async def _aask(effect: Ask) -> Any:
    try:
        return await effect.model.ainvoke(effect.messages)
    except Exception as error:  # a model may raise anything
        raise _model_error(error) from error


def _model_error(error: Exception) -> ModelError:
    seen = f"the chat model failed ({type(error).__name__}: {error})"
    return ModelError(seen, remedy="check the model, its key and its network")


def _rerank(effect: Rerank, callbacks: Any) -> list[Any]:
    try:
        found = _called(effect, callbacks)
    except Exception as error:  # a reranker may raise anything
        raise _reranker_error(error) from error
    if isinstance(found, Awaitable):
        if asyncio.iscoroutine(found):
            found.close()
        remedy = "use the async methods of memory, or a function that is not async"
        raise RerankerError("the reranker is async, and this call is not", remedy=remedy)
    return found  # type: ignore[no-any-return]


async def _arerank(effect: Rerank, callbacks: Any) -> list[Any]:
    """Ask within a timeout; a function that is not async runs in a thread."""
    try:
        async with asyncio.timeout(effect.seconds) as waiting:
            if hasattr(effect.reranker, "acompress_documents"):
                found = await effect.reranker.acompress_documents(effect.items, effect.question, callbacks=callbacks)
            else:
                found = await asyncio.to_thread(_called, effect, callbacks)
            return list(await found if isinstance(found, Awaitable) else found)
    except Exception as error:  # a reranker may raise anything
        if waiting.expired():
            raise RerankerError(
                f"the reranker did not answer within {effect.seconds:g} s",
                remedy="check it, or give it more time with RecallOptions(embedding_timeout=...)",
            ) from error
        raise _reranker_error(error) from error


def _called(effect: Rerank, callbacks: Any) -> Any:
    """Call a reranker, and make a list of what it returns unless that is to be awaited."""
    if hasattr(effect.reranker, "compress_documents"):
        return list(effect.reranker.compress_documents(effect.items, effect.question, callbacks=callbacks))
    try:
        found = effect.reranker(effect.question, effect.items)
    except StopIteration as error:  # which cannot leave a thread
        msg = "StopIteration"
        raise RuntimeError(msg) from error
    return found if isinstance(found, Awaitable) else list(found)


def _reranker_error(error: Exception) -> RerankerError:
    return RerankerError(f"the reranker failed ({type(error).__name__}: {error})", remedy=_REMEDY)
