"""`threads`, `show`, `recall`, `reindex`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import IndexOptions, Memory, RecallOptions
from langchain_workingmem._engine.embedder import name_of
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run
from tests.helpers.embeddings import WordEmbeddings


def answer(found: Any) -> Any:
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_threads_of_one_resource_and_of_all(run: Run, talked: Memory) -> None:
    everything = run("threads")
    assert "3 of 3 threads" in everything.stdout
    assert all(word in everything.stdout for word in ("A dog", "trip", "jonas"))
    assert "boat" not in run("threads", "--resource", "maya").stdout


def test_pages_of_threads_follow_each_other(run: Run, talked: Memory) -> None:
    seen = []
    words: list[str] = []
    while True:
        page = answer(run("threads", "--limit", "2", "--format=json", *words))
        seen += [thread["id"] for thread in page["items"]]
        if page["next_cursor"] is None:
            break
        words = ["--cursor", page["next_cursor"]]
    assert sorted(seen) == ["boat", "dog", "trip"]
    assert "add --cursor" in run("threads", "--limit", "2").stderr


def test_a_line_is_a_thread_where_nobody_looks(run: Run, talked: Memory) -> None:
    talked.threads.update("dog", title="many words " * 7)
    found = run("threads", COLUMNS=None)
    assert any("many words many words" in line and "dog" in line for line in found.stdout.splitlines())


def test_messages_are_shown_whole(run: Run, talked: Memory) -> None:
    long = "all of it " * 200
    call: Any = {"name": "weather", "args": {"city": "Oslo"}, "id": "c"}
    turn = [
        HumanMessage(long),
        AIMessage("", tool_calls=[call]),
        ToolMessage("sunny", tool_call_id="c", name="weather"),
    ]
    talked.save_turn(turn, thread_id="dog", resource_id="maya")
    found = run("show", "dog")
    assert found.exit_code == 0
    assert found.stdout.index("Nougat") < found.stdout.index(long.strip())
    assert '[called weather({"city": "Oslo"})]' in found.stdout
    assert "tool weather" in found.stdout


def test_messages_by_role_and_from_the_end(run: Run, talked: Memory) -> None:
    shown = answer(run("show", "dog", "--role", "assistant", "--format=json"))
    assert [row["message"]["data"]["content"] for row in shown["messages"]["items"]] == ["Hello Nougat!"]
    assert shown["thread"]["title"] == "A dog"
    newest = run("show", "dog", "--newest-first", "--limit", "1")
    assert "Hello Nougat!" in newest.stdout
    assert "My dog" not in newest.stdout
    assert "1 of 2" in newest.stderr
    assert "My dog" not in run("show", "dog", "--since", "2100-01-01").stdout
    today = f"{datetime.now(UTC):%Y-%m-%d}"  # a day as `until` lasts to its end
    assert "My dog" in run("show", "dog", "--since", "2020-01-01", "--until", today).stdout


def test_what_json_does_not_know_is_printed_as_null(run: Run, talked: Memory) -> None:
    message = HumanMessage("NaN", additional_kwargs={"score": float("nan")})
    talked.save_turn([message], thread_id="odd", resource_id="maya")
    (row,) = json.loads(run("show", "odd", "--format=json").stdout, parse_constant=pytest.fail)["messages"]["items"]
    assert row["message"]["data"]["content"] == "NaN"
    assert row["message"]["data"]["additional_kwargs"] == {"score": None}


def test_a_thread_that_is_not_there_or_not_theirs(run: Run, talked: Memory) -> None:
    missing = run("show", "nope")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "no thread 'nope'" in missing.stderr
    theirs = run("show", "boat", "--resource", "maya")
    assert theirs.exit_code == 1
    assert "does not belong" in theirs.stderr


def test_recall_marks_hits_in_their_windows(run: Run, talked: Memory) -> None:
    found = run("recall", "What is my dog called?", "--resource", "maya", "--top-k", "1")
    assert found.exit_code == 0
    (hit,) = (line for line in found.stdout.splitlines() if "▸" in line)
    assert "My dog is called Nougat." in hit
    assert "Hello Nougat!" in found.stdout
    assert "Kestrel" not in found.stdout


def test_filters_of_metadata(run: Run, talked: Memory) -> None:
    def found(*words: str) -> Any:
        return json.loads(run(*words, "--format=json").stdout)

    talked.threads.update("dog", metadata={"project": "a", "rank": 3})
    wanted = ("--thread-metadata", '{"project": {"$in": ["a"]}, "rank": {"$gt": 2}}')
    assert [thread["id"] for thread in found("threads", *wanted)["items"]] == ["dog"]
    assert {hit["thread_id"] for hit in found("recall", "dog", "--resource", "maya", *wanted)["hits"]} == {"dog"}
    assert not found("recall", "dog", "--resource", "maya", "--metadata", '{"topic": "x"}')["hits"]
    refused = run("threads", "--thread-metadata", "{")
    assert refused.exit_code == 2
    assert "the filter is not JSON" in refused.stderr
    assert "write an object" in refused.stderr


def test_recall_in_one_thread(run: Run, talked: Memory) -> None:
    result = answer(run("recall", "name", "--thread", "trip", "--message-range", "0", "--format=json"))
    assert {hit["thread_id"] for hit in result["hits"]} == {"trip"}
    assert result["hits"][0]["message"]["type"] in {"human", "ai"}
    assert "Nothing was recalled" in run("recall", "dog", "--resource", "nobody").stdout


def test_recall_takes_the_index_as_it_was_built(run: Run, server: EmbeddedRedis, prefix: str, local: Any) -> None:
    recall = RecallOptions(index=IndexOptions(algorithm="hnsw", m=8, dtype="float16"))
    with Memory(server.url, key_prefix=prefix, embeddings=local, recall=recall) as memory:
        memory.save_turn([HumanMessage("My dog is called Nougat.")], thread_id="t", resource_id="maya")
        assert "Nougat" in run("recall", "dog", "--resource", "maya").stdout
        assert answer(run("reindex", "--format=json")) == {"messages": 0}
        assert memory.recall.search("dog", resource_id="maya").hits


def test_vectors_of_another_model_are_not_mixed(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings(), recall=RecallOptions()) as memory:
        memory.save_turn([HumanMessage("My dog is called Nougat.")], thread_id="t", resource_id="maya")
    for words in (["recall", "dog", "--resource", "maya"], ["reindex", "--thread", "t"]):
        found = run(*words)
        assert found.exit_code == 1
        assert "made by 'words'" in found.stderr
    asked = run("reindex")
    assert asked.exit_code == 2
    assert "pass --yes" in asked.stderr
    assert "1 message has a new vector" in run("reindex", "--yes").stdout
    assert "Nougat" in run("recall", "dog", "--resource", "maya").stdout


def test_vectors_that_do_not_fit_are_changed_by_a_command(
    run: Run, server: EmbeddedRedis, prefix: str, local: Any
) -> None:
    other = WordEmbeddings(model=name_of(local))
    with Memory(server.url, key_prefix=prefix, embeddings=other, recall=RecallOptions()) as memory:
        memory.save_turn([HumanMessage("My dog is called Nougat.")], thread_id="t", resource_id="maya")
    found = run("recall", "dog", "--resource", "maya")
    assert found.exit_code == 1
    assert "`workingmem reindex`" in found.stderr
    assert "memory." not in found.stderr


def test_reindex_heals(run: Run, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix) as without:
        without.save_turn([HumanMessage("The cat is called Mimi.")], thread_id="cat", resource_id="maya")
    assert answer(run("reindex", "--resource", "jonas", "--format=json")) == {"messages": 0}
    assert answer(run("reindex", "--resource", "maya", "--format=json")) == {"messages": 1}
    assert answer(run("reindex", "--force", "--thread", "cat", "--format=json")) == {"messages": 1}
    # other settings than those of the vectors: embedded again
    assert answer(
        run("reindex", "--format=json", "--chunk-tokens", "50", "--role", "user", "--filterable", "topic")
    ) == {"messages": 4}


@pytest.mark.parametrize("words", [["threads"], ["show", "evil"], ["recall", "owned", "--resource", EVIL]])
def test_what_people_wrote_is_text(run: Run, outside: Memory, words: list[str]) -> None:
    outside.threads.create(resource_id=EVIL, thread_id="evil", title=EVIL, metadata={"key": EVIL})
    outside.save_turn([HumanMessage(f"owned {EVIL}")], thread_id="evil", resource_id=EVIL)
    for more in ([], ["--format=json"]):
        found = run(*words, *more)
        assert found.exit_code == 0
        assert "[red]" in found.stdout
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(found.output)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--thread", "dog", "--last", "1"], ["dog-a", "new-0", "new-1"]),
        (["--resource", "maya", "--last", "0"], ["new-0", "other", "new-1", "first"]),
        (["--resource", "maya", "--last", "3"], ["dog-a", "trip-q", "trip-a", "new-0", "other", "new-1", "first"]),
    ],
)
def test_messages_are_followed_as_they_arrive(
    run: Run, talked: Memory, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: list[str]
) -> None:
    """Also in a thread that is old or new; nothing comes twice, and Ctrl-C is the end."""
    looks = iter(
        [
            [],
            [("dog", "new-0"), ("boat", "of-jonas"), ("trip", "other")],
            [("dog", "new-1"), ("new", "first")],
            [],
        ]
    )

    def sleep(_: float) -> None:
        said = next(looks, None)
        if said is None:
            raise KeyboardInterrupt
        for thread, id in said:
            owner = "jonas" if thread == "boat" else "maya"
            talked.history.append([HumanMessage(f"This is {id}.", id=id)], thread_id=thread, resource_id=owner)

    monkeypatch.setattr("langchain_workingmem.cli.conversations.sleep", sleep)
    done = run("tail", *words, "--format", "jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line)["message"]["data"]["id"] for line in done.stdout.splitlines()] == expected


def test_following_names_the_thread_of_a_message(run: Run, talked: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("langchain_workingmem.cli.conversations.sleep", sleep)
    assert "  trip  assistant  trip-a\nDone: a bed for 12 July.\n" in run("tail", "--resource", "maya").stdout
    assert run("tail", "--thread", "nope").stderr.startswith("workingmem: there is no thread 'nope'")


@pytest.mark.parametrize("words", [["users"], ["threads"], ["threads", "--resource", "maya"]])
def test_without_an_index_nothing_is_listed_and_a_hint_says_why(
    run: Run, server: EmbeddedRedis, prefix: str, words: list[str]
) -> None:
    with Memory(server.url, key_prefix=prefix, create_index=False) as memory:
        memory.files.write("/a.md", "a", resource_id="maya")
    done = run(*words, "--format", "jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("No thread is listed, because there is no index of threads: if messages are stored")
    assert done.stderr.count("\n") == 1
    assert run(*words).exit_code == 0


def test_a_user_is_followed_from_before_the_first_thread(
    run: Run, server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([False, True, False])

    def sleep(_: float) -> None:
        is_said = next(looks, None)
        if is_said is None:
            raise KeyboardInterrupt
        if is_said:
            with Memory(server.url, key_prefix=prefix) as memory:
                memory.history.append([HumanMessage("Hello", id="first")], thread_id="trip", resource_id="maya")

    with Memory(server.url, key_prefix=prefix, create_index=False) as memory:
        memory.files.write("/a.md", "a", resource_id="maya")
    monkeypatch.setattr("langchain_workingmem.cli.conversations.sleep", sleep)
    done = run("tail", "--resource", "maya", "--format", "jsonl")
    assert done.exit_code == 0
    assert [json.loads(line)["message"]["data"]["id"] for line in done.stdout.splitlines()] == ["first"]
    assert done.stderr.count("no index of threads") == 1
