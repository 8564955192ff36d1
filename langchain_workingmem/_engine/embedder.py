"""The embedding model behind an LRU cache, for sync and async callers alike."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_workingmem.errors import EmbeddingError, OptionError
from langchain_workingmem.options import EMBEDDING_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from langchain_core.embeddings import Embeddings

    from langchain_workingmem._engine.effects import Embed

    Vectors = np.ndarray[Any, np.dtype[np.float32]]


SECONDS_A_TEXT = 1.0  # what a large model on a slow processor may need
MOST_BYTES = 64 * 2**20  # of texts and vectors that are kept; a text may have hundreds of megabytes
NEARLY = 1e-6  # how far numbers of two vectors may lie apart that are the same


class Embedder:
    """Embeds texts; each distinct text is sent to the model once while the cache remembers it: `cache_size` texts, and `MOST_BYTES`.

    A text may be a question and later a document, which models may embed differently. Those that do not are asked once for
    both: a model whose class says so (`embeds_alike = True`), or one whose two vectors of the first such text are equal.
    """

    def __init__(self, embeddings: Embeddings | None, cache_size: int, timeout: timedelta = EMBEDDING_TIMEOUT) -> None:
        self.embeddings = embeddings
        self._timeout = timeout.total_seconds()
        self._size = cache_size
        self._cache: OrderedDict[tuple[bool, str], Vectors] = OrderedDict()
        self._bytes = 0  # of the texts and vectors in it
        self._lock = Lock()
        said = getattr(embeddings, "embeds_alike", None)
        self._alike: bool | None = (
            said if isinstance(said, bool) else None
        )  # questions and documents; None: not known yet

    def embed(self, effect: Embed) -> Vectors:
        """Return an array of shape (texts, dimensions). Whatever the model raises becomes `EmbeddingError`."""
        known, missing = self._look_up(effect)
        if missing:
            model = self._model
            try:
                fresh = (
                    [model.embed_query(text) for text in missing] if effect.query else model.embed_documents(missing)
                )
            except Exception as error:  # a model may raise anything
                raise _failure(error) from error
            self._keep(effect, known, missing, fresh)
        return np.stack([known[text] for text in effect.texts])

    async def aembed(self, effect: Embed) -> Vectors:
        """Async twin of `embed`, but that a model is not waited for without end. A sync call cannot leave a model."""
        known, missing = self._look_up(effect)
        if missing:
            model = self._model
            seconds = self._timeout + SECONDS_A_TEXT * len(missing)
            try:
                async with asyncio.timeout(seconds) as waiting:
                    fresh = (
                        [await model.aembed_query(text) for text in missing]
                        if effect.query
                        else await model.aembed_documents(missing)
                    )
            except Exception as error:  # a model may raise anything
                if waiting.expired():
                    raise EmbeddingError(
                        f"the embedding model did not answer within {seconds:g} s",
                        remedy="see what keeps it, or give it more time with RecallOptions(embedding_timeout=...)",
                    ) from error
                raise _failure(error) from error
            self._keep(effect, known, missing, fresh)
        return np.stack([known[text] for text in effect.texts])

    @property
    def _model(self) -> Embeddings:
        if self.embeddings is None:
            raise OptionError("semantic recall needs an embedding model", remedy="pass embeddings=... to Memory")
        return self.embeddings

    def _look_up(self, effect: Embed) -> tuple[dict[str, Vectors], list[str]]:
        known: dict[str, Vectors] = {}
        missing: dict[str, None] = {}
        with self._lock:
            for text in effect.texts:
                key = self._key(effect, text)
                vector = None if effect.fresh else self._cache.get(key)
                if vector is None:
                    missing[text] = None
                else:
                    self._cache.move_to_end(key)
                    known[text] = vector
        return known, list(missing)

    def _key(self, effect: Embed, text: str) -> tuple[bool, str]:
        return effect.query and not self._alike, text

    def _compare(self, effect: Embed, known: dict[str, Vectors], texts: Sequence[str]) -> None:
        """Learn from the first text that was embedded both ways whether that makes a difference."""
        pairs = ((known[text], self._cache.get((not effect.query, text))) for text in texts)
        one, other = next(((one, other) for one, other in pairs if other is not None and one.any()), (None, None))
        if one is None or other is None:
            return
        self._alike = one.shape == other.shape and bool(np.allclose(one, other, rtol=0, atol=NEARLY))
        if self._alike:
            self._cache = OrderedDict(((False, text), vector) for (_, text), vector in self._cache.items())
            self._bytes = sum(_size(text, vector) for (_, text), vector in self._cache.items())

    def _keep(
        self, effect: Embed, known: dict[str, Vectors], texts: Sequence[str], fresh: Sequence[Sequence[float]]
    ) -> None:
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused below
                # copies: a row of the model's array would keep all of it alive
                rows = [np.array(vector, dtype=np.float32) for vector in fresh]
        except (TypeError, ValueError, OverflowError) as error:
            raise _failure(error) from error
        if len(rows) != len(texts):
            raise EmbeddingError(
                f"the embedding model gave {len(rows)} vectors for {len(texts)} texts", remedy="check the model"
            )
        sizes = {row.shape for row in (*rows, *known.values())}
        with self._lock:
            # a model has one size: when it gives another, nobody knows yet which of them was the mistake
            doubtful = any({vector.shape} != sizes for vector in islice(self._cache.values(), 1))
            if doubtful:
                self._cache.clear()
                self._bytes = 0
        if len(sizes) != 1 or min(sizes) == (0,) or len(min(sizes)) != 1:
            seen = ", ".join(sorted(map(str, sizes)))
            raise EmbeddingError(
                f"the embedding model gave vectors of shapes {seen}", remedy="they must be flat and of one size"
            )
        if not all(np.isfinite(row).all() for row in rows):
            raise EmbeddingError("the embedding model gave a vector with NaN or infinity", remedy="check the model")
        known.update(zip(texts, rows, strict=True))
        if doubtful:
            return
        with self._lock:
            if self._alike is None:
                self._compare(effect, known, texts)
            for text in texts:
                self._remember(self._key(effect, text), known[text])

    def _remember(self, key: tuple[bool, str], vector: Vectors) -> None:
        """Keep a vector, and forget the oldest ones."""
        old = self._cache.pop(key, None)
        if old is not None:
            self._bytes -= _size(key[1], old)
        size = _size(key[1], vector)
        if size > MOST_BYTES:
            return
        self._cache[key] = vector
        self._bytes += size
        while len(self._cache) > self._size or self._bytes > MOST_BYTES:
            (_, text), oldest = self._cache.popitem(last=False)
            self._bytes -= _size(text, oldest)


def _size(text: str, vector: Vectors) -> int:
    return sys.getsizeof(text) + sys.getsizeof(vector)


def _failure(error: Exception) -> EmbeddingError:
    seen = f"the embedding model failed ({type(error).__name__}: {error})"
    return EmbeddingError(seen, remedy="check the model, its key and its network")


def name_of(embeddings: Embeddings) -> str:
    """Name a model such that another model has another name, as far as it tells."""
    for attribute in ("model", "model_name", "model_id"):
        if isinstance(name := getattr(embeddings, attribute, None), str) and name:
            return name
    return type(embeddings).__qualname__
