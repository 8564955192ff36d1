"""Embedding models: one that runs offline without a key, and others by name."""

from __future__ import annotations

import json
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.embeddings import Embeddings

from langchain_workingmem.chat_models import model_errors
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    Tensor: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]

DIMENSIONS = 256
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_ROWS = Path("weights", f"l2_supercat_{DIMENSIONS}.safetensors")
_QUICK = 3000  # characters
_TYPES = {"F32": "<f4", "F16": "<f2"}
_BATCH = 64  # texts: an encoded one takes many times the memory of the text


class LocalEmbeddings(Embeddings):
    """Static token vectors of the package `wordllama` (MIT): 256 dimensions, offline, without a download or a key.

    The model loads in 0.1 s at first use, then takes 0.02 ms per text on one core. It suits demos, tests and short
    messages: recall finds .774 of the evidence of LoCoMo at 500 tokens, with MiniLM .820 (docs/recall.md). Vectors are
    normalised; a blank text has the zero vector. Needs the extra `local`.
    """

    model = "wordllama-l2-supercat-256"
    # Questions and documents with the same text have the same vector, so memory embeds a text once. Your models may set this.
    embeds_alike = True

    @cached_property
    def _loaded(self) -> tuple[Any, Tensor]:
        """The tokenizer, and a row of numbers for each token; rows that are not used stay in the file.

        The code of `wordllama` is not imported: that took 0.2 s, and it reads all rows.
        """
        try:
            from tokenizers import Tokenizer

            package = find_spec("wordllama")
            if package is None or package.origin is None:
                raise ModuleNotFoundError("No module named 'wordllama'", name="wordllama")
        except ImportError as error:
            remedy = "pip install 'langchain-workingmem[local]'"
            raise OptionError("LocalEmbeddings needs its extra", remedy=remedy) from error
        folder = Path(package.origin).parent
        try:
            tokenizer = Tokenizer.from_buffer((folder / _TOKENIZER).read_bytes())
            with (folder / _ROWS).open("rb") as file:
                rows = _tensor(mmap(file.fileno(), 0, access=ACCESS_READ), "embedding.weight")
        except (OSError, ValueError, KeyError) as error:
            remedy = "pip install --force-reinstall 'wordllama>=0.4.0,<0.5'"
            raise OptionError(f"a file of wordllama cannot be read ({error})", remedy=remedy) from error
        return tokenizer, rows

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 256 floats per text."""
        import numpy as np

        given = list(texts)
        full = [text for text in given if text.strip()]
        if not full:
            return [[0.0] * DIMENSIONS for _ in given]
        tokenizer, rows = self._loaded
        starts = range(0, len(full), _BATCH)
        encoded = (tokenizer.encode_batch_fast(full[at : at + _BATCH], add_special_tokens=False) for at in starts)
        means = np.array([rows[text.ids].sum(0, dtype=np.float32) / len(text) for text in chain.from_iterable(encoded)])
        found = iter((means / np.linalg.norm(means, axis=1, keepdims=True)).tolist())
        return [next(found) if text.strip() else [0.0] * DIMENSIONS for text in given]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text, the same as for a document."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Async twin of `embed_documents`."""
        return self.embed_documents(texts) if self._is_quick(texts) else await super().aembed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Async twin of `embed_query`."""
        return self.embed_query(text) if self._is_quick([text]) else await super().aembed_query(text)

    def _is_quick(self, texts: list[str]) -> bool:
        """Tell whether these take at most 1 ms: then to call a thread takes longer than the model (120 us beside 30)."""
        return "_loaded" in vars(self) and sum(map(len, texts)) <= _QUICK


def _tensor(content: mmap, name: str) -> Tensor:
    """Read one of a safetensors file: the size of a header (8 bytes), the header (JSON: types, shapes, offsets), the numbers.

    The array shares the memory of the content.
    """
    import numpy as np

    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])[name]
    begin, end = entry["data_offsets"]
    return np.frombuffer(memoryview(content)[start + begin : start + end], _TYPES[entry["dtype"]]).reshape(
        entry["shape"]
    )


def embeddings_by_name(name: str) -> Embeddings:
    """Make a model from "local", "openai:<model>" or any "provider:model" of langchain's `init_embeddings`."""
    if name == "local":
        return LocalEmbeddings()
    provider, _, model = name.partition(":")
    if not model:
        remedy = "use 'local' or 'provider:model', such as 'openai:text-embedding-3-small'"
        raise OptionError(f"embeddings={name!r}", remedy=remedy)
    extra = "[openai]'" if provider == "openai" else "[agents]' and the provider's package"
    with model_errors(f"embeddings={name!r}", f"'langchain-workingmem{extra}"):
        if provider == "openai":
            from langchain_openai import OpenAIEmbeddings

            return OpenAIEmbeddings(model=model)
        from langchain.embeddings import init_embeddings

        return init_embeddings(name)


def embedding_model(embeddings: Embeddings | str | None) -> Embeddings | None:
    """Return an embedding model, made by its name if it is a str."""
    if isinstance(embeddings, str):
        return embeddings_by_name(embeddings)
    if embeddings is not None and not hasattr(embeddings, "embed_documents"):
        raise wrong_type(embeddings, "embeddings", "pass an embedding model, or a name such as 'local'")
    return embeddings
