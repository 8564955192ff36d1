"""Calls the embedding model, and keeps its vectors in an LRU cache."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import islice
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import Call
from langchain_workingmem.errors import EmbeddingError, OptionError
from langchain_workingmem.options import EMBEDDING_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    import numpy as np
    from langchain_core.embeddings import Embeddings

    from langchain_workingmem._engine.plan import Plan

    Vectors = np.ndarray[Any, Any]


SECONDS_A_TEXT = 1.0  # a large model on a slow processor needs less
_TOLERANCE = 1e-6  # between the numbers of two equal vectors


class Texts(NamedTuple):
    """What a call of the embedding model embeds."""

    embedder: Embedder
    texts: Sequence[str]
    query: bool  # the texts are questions, which some models embed differently
    fresh: bool  # the cache is not read


class Embedder:
    """Embeds texts, with a cache of at most `cache_size` vectors.

    Models may embed questions and documents differently. If the class says `embeds_alike = True`, or if both vectors of the
    first text that comes as both are equal, a text is embedded once for both.
    """

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

    def embed(self, texts: Sequence[str], *, query: bool = False, fresh: bool = False) -> Call[Vectors]:
        """Embed texts, questions with `query`; return an array of shape (texts, dimensions).

        `fresh` does not read the cache. Any error of the model becomes `EmbeddingError`. An async call has a timeout, which a sync
        call of a model cannot have.
        """
        asked = Texts(self, texts, query, fresh)
        return Call(partial(self._embed, asked), partial(self._aembed, asked), asked)

    def dimensions(self) -> Plan[int]:
        """Embed a text to learn the dimensions of the model."""
        vectors = yield from self.embed(["How large are the vectors?"], fresh=True)
        return int(vectors.shape[1])

    def _embed(self, asked: Texts) -> Vectors:
        import numpy as np

        known, missing = self._look_up(asked)
        if missing:
            model = self._model
            try:
                ask, embed = model.embed_query, model.embed_documents
                fresh = [ask(text) for text in missing] if asked.query else embed(missing)
            except Exception as error:  # a model may raise anything
                raise _failure(error) from error
            self._keep(asked, known, missing, fresh)
        return np.array([known[text] for text in asked.texts])

    async def _aembed(self, asked: Texts) -> Vectors:
        import asyncio

        import numpy as np

        known, missing = self._look_up(asked)
        if missing:
            model = self._model
            seconds = self._timeout + SECONDS_A_TEXT * len(missing)
            try:
                async with asyncio.timeout(seconds) as waiting:
                    ask, embed = model.aembed_query, model.aembed_documents
                    fresh = [await ask(text) for text in missing] if asked.query else await embed(missing)
            except Exception as error:  # a model may raise anything
                if waiting.expired():
                    raise EmbeddingError(
                        f"the embedding model did not answer within {seconds:g} s",
                        remedy="check the model, or give it more time with RecallOptions(embedding_timeout=...)",
                    ) from error
                raise _failure(error) from error
            self._keep(asked, known, missing, fresh)
        return np.array([known[text] for text in asked.texts])

    @property
    def _model(self) -> Embeddings:
        if self.embeddings is None:
            raise OptionError("semantic recall needs an embedding model", remedy="pass embeddings=... to Memory")
        return self.embeddings

    def _look_up(self, asked: Texts) -> tuple[dict[str, Vectors], list[str]]:
        known: dict[str, Vectors] = {}
        missing: dict[str, None] = {}
        with self._lock:
            for text in asked.texts:
                key = (asked.query and not self._alike, text)
                vector = None if asked.fresh else self._cache.get(key)
                if vector is None:
                    missing[text] = None
                else:
                    self._cache.move_to_end(key)
                    known[text] = vector
        return known, list(missing)

    def _compare(self, asked: Texts, known: dict[str, Vectors], texts: Sequence[str]) -> None:
        """Learn whether questions and documents have equal vectors, from the first text that came as both."""
        import numpy as np

        pairs = ((known[text], self._cache.get((not asked.query, text))) for text in texts)
        # every model may embed an empty text as zeros
        one, other = next(((one, other) for one, other in pairs if other is not None and one.any()), (None, None))
        if one is None or other is None:
            return
        self._alike = one.shape == other.shape and bool(np.allclose(one, other, rtol=0, atol=_TOLERANCE))
        if self._alike:
            self._cache = OrderedDict(((False, text), vector) for (_, text), vector in self._cache.items())

    def _keep(
        self, asked: Texts, known: dict[str, Vectors], texts: Sequence[str], fresh: Sequence[Sequence[float]]
    ) -> None:
        """Check the vectors of the model, add them to `known`, and cache them."""
        import numpy as np

        try:
            with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are refused below
                # copies: a row of the model's array would keep the whole array in memory
                rows = [np.array(vector, dtype=np.float32) for vector in fresh]
        except (TypeError, ValueError, OverflowError) as error:
            raise _failure(error) from error
        if len(rows) != len(texts):
            seen = f"the embedding model gave {len(rows)} vectors for {len(texts)} texts"
            raise EmbeddingError(seen, remedy="check the model")
        shapes = {row.shape for row in (*rows, *known.values())}
        with self._lock:
            # a model has one size; after a change it is unknown which size is wrong, so these vectors are not cached either
            has_changed = any({vector.shape} != shapes for vector in islice(self._cache.values(), 1))
            if has_changed:
                self._cache.clear()
            if len(shapes) != 1 or len(min(shapes)) != 1 or min(shapes) == (0,):
                seen = f"the embedding model gave vectors of shapes {', '.join(sorted(map(str, shapes)))}"
                raise EmbeddingError(seen, remedy="they must be flat and of one size")
            if not all(
                isfinite(np.maximum.reduce(np.abs(row))) for row in rows
            ):  # `isfinite` of all takes twice the time
                raise EmbeddingError("the embedding model gave a vector with NaN or infinity", remedy="check the model")
            known.update(zip(texts, rows, strict=True))
            if has_changed:
                return
            if self._alike is None:
                self._compare(asked, known, texts)
            for text in texts:
                key = (asked.query and not self._alike, text)
                self._cache[key] = known[text]
                self._cache.move_to_end(key)
            while len(self._cache) > self._size:
                self._cache.popitem(last=False)


def _failure(error: Exception) -> EmbeddingError:
    seen = f"the embedding model failed ({type(error).__name__}: {error})"
    return EmbeddingError(seen, remedy="check the model, its key and its network")


def name_of(embeddings: Embeddings) -> str:
    """Return the model's own name, else the name of its class."""
    for attribute in ("model", "model_name", "model_id"):
        if isinstance(name := getattr(embeddings, attribute, None), str) and name:
            return name
    return type(embeddings).__qualname__
