"""A small embedding model."""

from __future__ import annotations

import re
import zlib
from typing import cast

import numpy as np
from langchain_core.embeddings import Embeddings


class WordEmbeddings(Embeddings):
    """A small real model: a text is the sum of its words' directions, so texts that share words are near."""

    def __init__(self, dims: int = 64, model: str = "words") -> None:
        self.dims = dims
        self.model = model
        self.calls: list[list[str]] = []  # the texts of each call of the model
        self.broken: Exception | None = None  # raised instead of an answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken is not None:
            raise self.broken
        self.calls.append(list(texts))
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def _vector(self, text: str) -> list[float]:
        total = np.full(self.dims, 1e-6)
        for word in re.findall(r"\w+", text.lower()):
            total += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(self.dims)
        return cast("list[float]", (total / np.linalg.norm(total)).tolist())
