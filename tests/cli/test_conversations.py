"""`users`, `threads`, `show`, `recall`, `reindex`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import HumanMessage

from langchain_workingmem import IndexOptions, Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import Run
from tests.helpers.embeddings import WordEmbeddings


def answer(found: Any) -> Any:
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_users_are_listed(run: Run, talked: Memory) -> None:
    rows = answer(run("users", "--format", "json"))["items"]
    assert {row["user_id"]: (row["threads"], row["messages"]) for row in rows} == {"maya": (2, 4), "jonas": (1, 2)}
    first = run("users", "--limit", "1")
    assert "jonas" in first.stdout
    assert "maya" in run("users", *first.stderr.split()[-2:]).stdout


def test_threads_are_listed_page_by_page(run: Run, talked: Memory) -> None:
    everything = run("threads")
    assert all(word in everything.stdout for word in ("3 of 3 threads", "A dog", "trip", "jonas"))
    assert "boat" not in run("threads", "--user", "maya").stdout
    first = answer(run("threads", "--limit", "2", "--format=json"))
    rest = answer(run("threads", "--limit", "2", "--format=json", "--cursor", first["next_cursor"]))
    assert [len(page["items"]) for page in (first, rest)] == [2, 1]
    assert {thread["id"] for page in (first, rest) for thread in page["items"]} == {"boat", "dog", "trip"}
    assert rest["next_cursor"] is None
    assert "add --cursor" in run("threads", "--limit", "2").stderr


def test_messages_by_role_by_time_and_from_the_end(run: Run, talked: Memory) -> None:
    shown = answer(run("show", "--thread", "dog", "--role", "assistant", "--format=json"))
    assert [row["message"]["data"]["content"] for row in shown["items"]] == ["Hello Nougat!"]
    newest = run("show", "--thread", "dog", "--newest-first", "--limit", "1")
    assert "Hello Nougat!" in newest.stdout
    assert "My dog" not in newest.stdout
    assert "My dog" not in run("show", "--thread", "dog", "--since", "2100-01-01").stdout
    soon = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"
    assert "My dog" in run("show", "--thread", "dog", "--since", "2020-01-01", "--until", soon).stdout


def test_a_thread_that_is_not_there_or_not_theirs(run: Run, talked: Memory) -> None:
    missing = run("show", "--thread", "nope")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "no thread 'nope'" in missing.stderr
    theirs = run("show", "--thread", "boat", "--user", "maya")
    assert theirs.exit_code == 1
    assert "does not belong" in theirs.stderr


def test_recall_shows_hits_in_their_windows(run: Run, talked: Memory) -> None:
    found = run("recall", "What is my dog called?", "--user", "maya", "--top-k", "1")
    assert found.exit_code == 0
    assert "My dog is called Nougat." in found.stdout
    assert "Hello Nougat!" in found.stdout
    assert "Kestrel" not in found.stdout
    in_one = answer(run("recall", "name", "--thread", "trip", "--format=json"))
    assert {hit["thread_id"] for hit in in_one["hits"]} == {"trip"}
    assert "Nothing was recalled" in run("recall", "dog", "--user", "nobody").stdout


def test_recall_takes_the_index_as_it_was_built(run: Run, server: EmbeddedRedis, prefix: str, local: Any) -> None:
    recall = RecallOptions(index=IndexOptions(algorithm="hnsw", m=8, dtype="float16"))
    with Memory(server.url, key_prefix=prefix, embeddings=local, recall=recall) as memory:
        memory.save_turn([HumanMessage("My dog is called Nougat.")], thread_id="t", user_id="maya")
        assert "Nougat" in run("recall", "dog", "--user", "maya").stdout
        assert answer(run("reindex", "--format=json")) == {"messages": 0}
        assert memory.recall.search("dog", user_id="maya").hits


def test_vectors_of_another_model_are_not_mixed(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings(), recall=RecallOptions()) as memory:
        memory.save_turn([HumanMessage("My dog is called Nougat.")], thread_id="t", user_id="maya")
    for words in (["recall", "dog", "--user", "maya"], ["reindex", "--thread", "t"]):
        found = run(*words)
        assert found.exit_code == 1
        assert "made by 'words'" in found.stderr
    asked = run("reindex")
    assert asked.exit_code == 2
    assert "pass --yes" in asked.stderr
    assert "1 message embedded" in run("reindex", "--yes").stdout
    assert "Nougat" in run("recall", "dog", "--user", "maya").stdout


def test_reindex_heals(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix) as without:
        without.save_turn([HumanMessage("The cat is called Mimi.")], thread_id="cat", user_id="maya")
    assert answer(run("reindex", "--user", "jonas", "--format=json")) == {"messages": 0}
    assert answer(run("reindex", "--user", "maya", "--format=json")) == {"messages": 1}
    assert answer(run("reindex", "--force", "--thread", "cat", "--format=json")) == {"messages": 1}
