"""Embedding models: the local one, and others by name."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from langchain_workingmem import LocalEmbeddings, Memory, OptionError, RecallOptions, embeddings
from langchain_workingmem.embeddings import embedding_model

if TYPE_CHECKING:
    from pathlib import Path

    from langchain_workingmem.embedded import EmbeddedRedis


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


def test_local_by_name_serves_a_memory(server: EmbeddedRedis, prefix: str) -> None:
    facts = ["my cat is called Molly", "we fly to Paris in May", "I am allergic to peanuts", "the build fails"]
    options = RecallOptions(message_range=0, search="semantic")
    with Memory(server.url, embeddings="local", recall=options, key_prefix=prefix) as memory:
        memory.history.append([("human", fact) for fact in facts], thread_id="t", user_id="ann")
        found = memory.recall.search("what is the name of my pet", user_id="ann", top_k=4)
    assert found.hits[0].message.content == "my cat is called Molly"
    assert all(one.similarity >= two.similarity for one, two in pairwise(found.hits))
