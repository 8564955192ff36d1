"""Embedding models: the local one, and others by name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langchain_workingmem import LocalEmbeddings, OptionError, embeddings
from langchain_workingmem._engine.calls import Embedder
from langchain_workingmem.embeddings import embedding_model


@pytest.fixture(scope="module")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


def test_vectors_are_those_of_wordllama(local: LocalEmbeddings, tmp_path: Path) -> None:
    texts = ["my cat is called Molly", "Grüße aus Köln! 漢字 🍒", "word " * 500, "?!", "\0", "</s> <unk>", "  x"]
    code = (
        "import json, pathlib, sys, wordllama\n"
        "model = wordllama.WordLlama.load(cache_dir=pathlib.Path(wordllama.__file__).parent, disable_download=True)\n"
        f"print(json.dumps(model.embed({texts!r}, norm=True).tolist()))"
    )
    assert local.embed_documents(texts) == json.loads(run(code, tmp_path))


@pytest.mark.parametrize("name", ["tokenizer", "rows"])
@pytest.mark.parametrize("content", [b"", b"no such file"])
def test_a_file_that_is_missing_or_wrong_is_named_with_its_remedy(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    for _ in range(2):
        monkeypatch.setattr(embeddings, f"_{name.upper()}", path)  # an absolute path replaces the package's folder
        with pytest.raises(OptionError, match="a file of wordllama cannot be read") as caught:
            LocalEmbeddings().embed_query("x")
        assert caught.value.remedy == "pip install --force-reinstall 'wordllama>=0.4.0,<0.5'"
        path.write_bytes(content)


def run(code: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_nothing_is_written_or_downloaded(tmp_path: Path) -> None:
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('the network was used')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "from langchain_workingmem import LocalEmbeddings\n"
        "print(len(LocalEmbeddings().embed_query('x')))"
    )
    assert run(code, tmp_path).strip() == "256"
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- by name


@pytest.mark.parametrize("name", ["Local", "openai:", "text-embedding-3-small"])
def test_a_name_without_a_provider_names_the_remedy(name: str) -> None:
    with pytest.raises(OptionError, match="'local', 'multilingual' or 'provider:model'"):
        embedding_model(name)


def test_openai_by_name_is_made_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    made = embedding_model("openai:text-embedding-3-large")
    assert (type(made).__name__, getattr(made, "model", None)) == ("OpenAIEmbeddings", "text-embedding-3-large")


# ---------------------------------------------------------------------- the cache of vectors


class Counted(Embeddings):
    """A model that embeds questions as documents, or nearly."""

    def __init__(self, apart: float = 0.0, **attributes: Any) -> None:
        self.apart = apart
        self.calls: list[tuple[str, str]] = []
        vars(self).update(attributes)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += [("document", text) for text in texts]
        return [self.vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(("question", text))
        return [value + self.apart for value in self.vector(text)]

    def vector(self, text: str) -> list[float]:
        return [float(bool(text.strip())), float(len(text.strip()))]


def ask(face: str, embedder: Embedder, *texts: str, query: bool = False) -> None:
    call: Any = embedder.embed(texts, query=query)
    call.call() if face == "sync" else asyncio.run(call.acall())


@pytest.mark.in_turn("face")
def test_a_model_whose_class_says_so_is_asked_once_for_both(face: str) -> None:
    model = Counted(embeds_alike=True)
    embedder = Embedder(model, 100)
    for text in ("one", "two"):
        for query in (True, False, True):
            ask(face, embedder, text, query=query)
    assert model.calls == [("question", "one"), ("question", "two")]


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("apart", [0.0, 5e-7])
def test_a_model_that_shows_equal_vectors_is_asked_once_from_then_on(face: str, apart: float) -> None:
    model = Counted(apart)
    embedder = Embedder(model, 100)
    for text, query in (("one", True), ("one", False), ("two", True), ("two", False)):
        ask(face, embedder, text, query=query)
    ask(face, embedder, "three", "four")
    ask(face, embedder, "three", query=True)
    asked = [("question", "one"), ("document", "one"), ("question", "two"), ("document", "three"), ("document", "four")]
    assert model.calls == asked


@pytest.mark.in_turn("face")
def test_a_model_that_embeds_questions_otherwise_is_asked_for_both(face: str) -> None:
    model = Counted(1.0)
    embedder = Embedder(model, 100)
    for text in ("one", "two"):
        for query in (False, True):
            ask(face, embedder, text, query=query)
    assert model.calls == [(kind, text) for text in ("one", "two") for kind in ("document", "question")]


def test_the_local_model_says_the_truth() -> None:
    model = LocalEmbeddings()
    assert LocalEmbeddings.embeds_alike
    texts = ["My dog is called Nougat", "what is the name of my dog?"]
    assert np.array_equal(model.embed_documents(texts), [model.embed_query(text) for text in texts])
