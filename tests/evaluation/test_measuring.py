"""What is stored and asked, on a real Redis."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
import redis

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import EmbeddingError
from langchain_workingmem.evaluation import (
    SHARE,
    TOGETHER,
    TOKENS,
    Bench,
    DataSet,
    compare,
    read,
    variant_of,
)
from langchain_workingmem.options import RecallArguments
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY

Make = Callable[..., Bench]


def data_of(*lines: dict[str, Any]) -> DataSet:
    (data,) = read([("own.jsonl", io.StringIO("\n".join(map(json.dumps, lines))))])
    return data


@pytest.fixture
def make(server: EmbeddedRedis, prefix: str) -> Iterator[Make]:
    made = []

    def bench(data: DataSet, *variants: str, model: WordEmbeddings | None = None, limit: int | None = None) -> Bench:
        given, models = [variant_of(one) for one in variants or ("",)], model or WordEmbeddings()
        found = Bench(server.url, data, given, model_of=lambda _: models, key_prefix=prefix, limit=limit)
        made.append(found)
        return found

    yield bench
    for one in made:
        one.close()


def store(bench: Bench) -> Bench:
    """Store everything before the first question: the ranking of words depends on what others said."""
    for _ in bench.asked():
        pass
    return bench


def ask(bench: Bench) -> Bench:
    for resource, question in bench.asked():
        bench.measure(resource, question)
    return bench


WORDS = [first + second for first in "bdfgklmnprst" for second in ("a", "e", "ilo", "uran", "ovet")]


def crowd(messages: int) -> DataSet:
    """Two resources with more messages than a search has candidates, some of them long, some by persons."""
    chance = random.Random(3)
    lines: list[dict[str, Any]] = []
    for number in range(messages):
        text = " ".join(chance.choices(WORDS, k=chance.choice([4, 9, 30, 900])))
        resource = f"r{number % 2}"
        more = {"thread_id": f"{resource}-{number % 6}", "name": chance.choice(["Maya", "Jon"])}
        lines.append({"id": f"m{number}", "role": "user", "text": text, "resource_id": resource, **more})
    for number in range(12):
        text = f"What did {chance.choice(['Maya', 'they'])} say about {' '.join(chance.sample(WORDS, 4))}?"
        evidence = [f"m{2 * one + number % 2}" for one in chance.sample(range(messages // 2), 3)]
        lines.append({"question": text, "evidence": evidence})
    return data_of(*lines)


MANY = 700 if NIGHTLY else 300  # messages: more than a search ranks together


@pytest.mark.in_turn("search")
@pytest.mark.parametrize("search", ["hybrid", "semantic"])
def test_one_deep_search_gives_what_each_smaller_search_returns(make: Make, search: str) -> None:
    bench = ask(store(make(crowd(MANY), f"search={search}")))
    (found,), (variant,), (memory,) = bench.results([True] * 12), bench.variants, bench.memories
    asked = [(resource.id, question) for resource, question in bench.asked()]
    assert max(variant.top_k) == TOGETHER
    for number, (resource_id, question) in [*enumerate(asked)][: 12 if NIGHTLY else 2]:
        for first, top_k in enumerate(variant.top_k):
            for second, window in enumerate(variant.ranges):
                limits: Any = {"top_k": top_k, "message_range": window}
                result = memory.recall.search(question.text, resource_id=resource_id, **limits)
                places = {(row.thread_id, str(row.message.id)) for row in result.rows}
                noted = found.rows[number, first, second]
                assert noted[TOKENS] == sum(count_tokens(str(one.text)) for one in result.messages)
                assert noted[SHARE] == len(places & question.evidence) / len(question.evidence)


def test_more_hits_than_a_search_ranks_together_have_searches_of_their_own(make: Make) -> None:
    bench = ask(store(make(crowd(MANY), "top_k=130,message_range=0")))
    ((rows,), (memory,)) = [one.rows for one in bench.results([True] * 12)], bench.memories
    resource, question = next(bench.asked())
    result = memory.recall.search(question.text, resource_id=resource.id, top_k=130, message_range=0)
    assert len(result.hits) == 130
    assert rows[0, -1, 0, TOKENS] == sum(count_tokens(str(one.text)) for one in result.messages)


TALK = [
    {"id": "a", "role": "user", "text": "My dog is called Nougat.", "stored_at": "2026-05-01T08:00Z", "name": "Maya"},
    {"id": "b", "role": "user", "text": "The dog likes carrots.", "stored_at": "2026-05-02T08:00Z", "thread_id": "two"},
    {"id": "c", "role": "assistant", "text": "So does the rabbit.", "stored_at": "2026-05-03T08:00Z"},
]
EARLY = {"question": "What does the dog like?", "evidence": ["a"], "date": "2026-05-01T09:00Z"}
LATE = {"question": "What is the dog called?", "evidence": ["a"], "category": "names"}


def test_a_question_searches_only_what_was_said_before_it(make: Make) -> None:
    bench = make(data_of(*TALK, LATE, EARLY))
    (memory,) = bench.memories
    known = []
    for resource, question in bench.asked():
        result = memory.recall.search(question.text, resource_id=resource.id, top_k=10, message_range=0)
        known.append((question.text, {message.id for message in result.messages}))
    assert known == [("What does the dog like?", {"a"}), ("What is the dog called?", {"a", "b", "c"})]


def test_who_is_asked_nothing_is_stored_too(make: Make) -> None:
    other = {"id": "o", "role": "user", "text": "I sail.", "resource_id": "other", "thread_id": "o"}
    (memory,) = ask(make(data_of(*TALK, other, LATE))).memories
    assert [row.message.text for row in memory.history.page("o")] == ["I sail."]


def test_messages_keep_their_times_names_and_threads(make: Make) -> None:
    bench = ask(make(data_of(*TALK, LATE)))
    (memory,) = bench.memories
    (row,) = memory.history.page("two")
    assert (row.message.id, row.stored_at.isoformat()) == ("b", "2026-05-02T08:00:00+00:00")
    first, _ = memory.history.page("user")
    assert (first.message.name, first.message.type) == ("Maya", "human")
    hits = memory.recall.search("carrots", resource_id="user", since=first.stored_at, message_range=0).hits
    assert "b" in {hit.message.id for hit in hits}


def test_names_reach_the_search(make: Make) -> None:
    """A question that names an author finds the author's own words."""
    text = "I bought a kayak in spring."
    lines: list[dict[str, Any]] = [
        {"id": name, "role": "user", "text": text, "name": name, "thread_id": name} for name in ("Maya", "Jon", "Ann")
    ]
    lines += [{"question": f"Did {name} buy a kayak?", "evidence": [name]} for name in ("Maya", "Jon", "Ann")]
    named, same = ask(
        make(data_of(*lines), "top_k=1,message_range=0", "top_k=1,message_range=0,weights.author=0")
    ).results([True] * 3)
    assert named.rows[:, 0, 0, SHARE].mean() == 1.0
    assert same.rows[:, 0, 0, SHARE].mean() < 1.0


def test_options_gain_nothing_over_themselves_and_share_what_is_stored(
    make: Make, raw: redis.Redis, prefix: str
) -> None:
    bench = ask(make(crowd(100), "", "", "weights.length=0"))
    _, again, other = compare(bench.results([True] * 12), [500, 2000])
    assert [(cell.gain, cell.gain_interval) for cell in again] == [(0.0, (0.0, 0.0))] * 2
    assert any(cell.gain for cell in other)
    assert stored_under(raw, prefix) == {f"{prefix}-0"}


def test_options_that_store_in_another_way_have_messages_of_their_own(
    make: Make, raw: redis.Redis, prefix: str
) -> None:
    ask(make(crowd(20), "", "chunk_tokens=50", "chunk_tokens=50,search=semantic"))
    assert stored_under(raw, prefix) == {f"{prefix}-0", f"{prefix}-1"}


def stored_under(raw: redis.Redis, prefix: str) -> set[str]:
    keys: Sequence[bytes] = list(raw.scan_iter(f"{prefix}-*:vector:*"))
    return {key.decode().partition(":")[0] for key in keys}


def test_a_limit_takes_questions_evenly_from_each_resource(make: Make) -> None:
    bench = make(crowd(40), limit=4)
    asked = [(resource.id, question.text) for resource, question in bench.asked()]
    assert len(bench) == len(asked) == 4
    assert [resource for resource, _ in asked] == ["r0", "r0", "r1", "r1"]


def test_where_everything_came_back_larger_budgets_have_the_last_share(make: Make) -> None:
    (found,) = ask(make(data_of(*TALK, LATE))).results([True])
    assert found.ends
    ((cell,),) = compare([found], [100_000])
    assert cell.share == 1.0


def test_the_date_of_a_question_is_the_present_of_its_search(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(data_of(*TALK, EARLY))
    (memory,) = bench.memories
    seen: list[Any] = []
    search = memory.recall.search

    def noted(text: str, *, now: Any = None, **arguments: Any) -> Any:
        seen.append(now)
        return search(text, **arguments)

    monkeypatch.setattr(memory.recall, "search", noted)
    monkeypatch.setattr(RecallArguments, "__optional_keys__", RecallArguments.__optional_keys__ | {"now"})
    ask(bench)
    assert {str(now) for now in seen} == {"2026-05-01 09:00:00+00:00"}


def test_a_failing_model_does_not_send_people_to_reindex(make: Make) -> None:
    model = WordEmbeddings()
    model.broken = RuntimeError("no key")
    with closing(make(data_of(*TALK, LATE), model=model)) as bench, pytest.raises(EmbeddingError) as caught:
        ask(bench)
    assert "reindex" not in str(getattr(caught.value, "__notes__", ""))
