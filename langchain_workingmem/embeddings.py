"""Embedding models: one from a pip package, and others by name."""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import MODEL_REMEDY, check_model_name

if TYPE_CHECKING:
    from collections.abc import Iterable

DIMENSIONS = 256


class LocalEmbeddings(Embeddings):
    """Static token vectors of the package `wordllama` (MIT): 256 dimensions, offline, without a download or a key.

    It loads in 0.2 to 0.5 s at first use, then takes 0.03 ms per text on one core. It suits demos, tests and short messages:
    with it, recall found .663 of the evidence of LoCoMo at 500 tokens, with MiniLM .745 (docs/recall.md). Vectors are
    normalised; a blank text has the zero vector. Needs the extra `local`.
    """

    model = "wordllama-l2-supercat-256"
    # A text has the same vector as a question and as a document, so memory embeds it once. Your own models may set this too.
    embeds_alike = True

    @cached_property
    def _wordllama(self) -> Any:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            import wordllama
        except ImportError as error:
            raise OptionError(
                "LocalEmbeddings needs its extra",
                remedy="pip install 'langchain-workingmem[local]'",
            ) from error
        finally:
            # the import of wordllama configures the root logger of the whole program
            root.handlers[:], root.level = handlers, level
        return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 256 floats per text."""
        given = list(texts)
        full = [text for text in given if text.strip()]
        found = iter(self._wordllama.embed(full, norm=True).tolist() if full else ())
        return [next(found) if text.strip() else [0.0] * DIMENSIONS for text in given]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text, the same as for a document."""
        return self.embed_documents([text])[0]


def embeddings_by_name(name: str) -> Embeddings:
    """Make a model from "local", "openai:<model>" or any "provider:model" of langchain's `init_embeddings`."""
    if name == "local":
        return LocalEmbeddings()
    check_model_name(name, "embeddings")
    provider, _, model = name.partition(":")
    if not model:
        raise OptionError(
            f"embeddings={name!r}",
            remedy="use 'local' or 'provider:model', such as 'openai:text-embedding-3-small'",
        )
    try:
        if provider == "openai":
            from langchain_openai import OpenAIEmbeddings

            return OpenAIEmbeddings(model=model)
        from langchain.embeddings import init_embeddings

        return init_embeddings(name)
    except ImportError as error:
        needed = "[openai]'" if provider == "openai" else "[agents]' and the provider's package"
        raise OptionError(
            f"embeddings={name!r}: {error}", remedy=f"pip install 'langchain-workingmem{needed}"
        ) from error
    except Exception as error:  # no key, an unknown provider: each package has its own errors
        raise OptionError(f"embeddings={name!r} cannot be made ({error})", remedy=MODEL_REMEDY) from error


def embedding_model(embeddings: Embeddings | str | None) -> Embeddings | None:
    """Make an embedding model of a name; one that is passed stays."""
    if isinstance(embeddings, str):
        return embeddings_by_name(embeddings)
    if embeddings is not None and not hasattr(embeddings, "embed_documents"):
        raise OptionError(
            f"embeddings is of type {type(embeddings).__name__}",
            remedy="pass an embedding model, or a name such as 'local'",
        )
    return embeddings
