"""Embedding models: one that comes inside a pip package, and others by name."""

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
    """Static token vectors of the package `wordllama` (MIT): 256 dimensions, offline, nothing downloaded, no key.

    Loads in 0.2 to 0.5 s at first use, then takes 0.03 ms a text on one core. Light, good for demos, tests and short
    messages: recall brought back .663 of the evidence of LoCoMo at 500 tokens where MiniLM brought .745 (docs/recall.md).
    Vectors are normalised; a blank text has the zero vector. Needs the extra `local`.
    """

    model = "wordllama-l2-supercat-256"
    # A question has the vector that it has as a document, so memory embeds a text once for both. Models of your own may say so, too.
    embeds_alike = True

    @cached_property
    def _wordllama(self) -> Any:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            import wordllama
        except ImportError as error:
            raise OptionError(
                "LocalEmbeddings needs its extra", remedy="pip install 'langchain-workingmem[local]'"
            ) from error
        finally:
            # importing wordllama configures the root logger of the whole program
            root.handlers[:], root.level = handlers, level
        return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return a vector of 256 floats per text."""
        given = list(texts)
        full = [text for text in given if text.strip()]
        found = iter(self._wordllama.embed(full, norm=True).tolist() if full else ())
        return [next(found) if text.strip() else [0.0] * DIMENSIONS for text in given]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text; questions are embedded as documents are."""
        return self.embed_documents([text])[0]


def embeddings_by_name(name: str) -> Embeddings:
    """Make a model from "local", "openai:<model>" or any "provider:model" that langchain's `init_embeddings` knows."""
    if name == "local":
        return LocalEmbeddings()
    check_model_name(name, "embeddings")
    provider, _, model = name.partition(":")
    if not model:
        raise OptionError(
            f"embeddings={name!r}", remedy="use 'local' or 'provider:model', such as 'openai:text-embedding-3-small'"
        )
    if provider == "openai":
        try:
            from langchain_openai import OpenAIEmbeddings
        except ImportError as error:
            raise OptionError(
                f"embeddings={name!r} needs its extra", remedy="pip install 'langchain-workingmem[openai]'"
            ) from error
        from openai import OpenAIError

        try:
            return OpenAIEmbeddings(model=model)
        except OpenAIError as error:  # no key
            raise OptionError(f"embeddings={name!r} cannot be made ({error})", remedy=MODEL_REMEDY) from error
    try:
        from langchain.embeddings import init_embeddings

        return init_embeddings(name)
    except ImportError as error:
        raise OptionError(
            f"embeddings={name!r}: {error}",
            remedy="pip install 'langchain-workingmem[agents]' and the provider's package",
        ) from error
    except ValueError as error:
        msg = f"embeddings={name!r}: {error}"
        raise OptionError(msg) from error


def embedding_model(embeddings: Embeddings | str | None) -> Embeddings | None:
    """Make an embedding model of a name; one that is passed stays."""
    if not isinstance(embeddings, str):
        if embeddings is not None and not hasattr(embeddings, "embed_documents"):
            msg = (
                f"embeddings is of type {type(embeddings).__name__}: pass an embedding model, or a name such as 'local'"
            )
            raise OptionError(msg)
        return embeddings
    return embeddings_by_name(embeddings)
