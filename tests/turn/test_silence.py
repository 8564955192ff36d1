# ruff: noqa: RUF001 - marks of other scripts
"""A turn shows nothing where nothing is asked; a short question is asked with what was said before it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from redis import Redis

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions
from langchain_workingmem.errors import EmbeddingError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make

TALK = Path(__file__).parents[2] / "benchmarks/talk"
ROLES: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}
NEW: Any = {"thread_id": "new", "user_id": "ann"}
LONG = f"{'Some report. ' * 200} What of me? {'Some report. ' * 200}"


@pytest.fixture(params=["en", "de", "zh"])
def talk(request: pytest.FixtureRequest) -> Any:
    return json.loads((TALK / f"{request.param}.json").read_text(encoding="utf-8"))


@pytest.fixture
def knowing(make_memory: Make, local_model: LocalEmbeddings, talk: Any) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    for thread in {one["thread"]: None for one in talk["messages"]}:
        messages = [
            ROLES[one["role"]](one["text"], id=one["id"]) for one in talk["messages"] if one["thread"] == thread
        ]
        memory.history.append(messages, thread_id=thread, user_id="ann")
    return memory


@pytest.fixture
def local(make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    lines = [
        ("user", "My dog is called Nougat."),
        ("assistant", "I wrote notes.md and changed the plan."),
        ("user", "I eat no walnuts. My order is 4711-AB."),
    ]
    memory.save_turn(lines, thread_id="old", user_id="ann")
    return memory


@pytest.mark.parametrize("text", ["What do you know about me?", "ماذا تعرف عني؟", "Τι ξέρεις για μένα\u037e", LONG])
def test_what_asks_something_is_never_silent(local: Memory, text: str) -> None:
    assert len(local.context(text, **NEW, read_only=True).recalled.rows) >= 2


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("asdf qwer", []),
        ("My dog Nougat is called by my dog.", ["My dog is called Nougat."]),
        ("zzz 4711-AB zzz qqq", ["I eat no walnuts. My order is 4711-AB."]),
    ],
)
def test_each_hit_is_cut_for_itself(local: Memory, text: str, hits: list[str]) -> None:
    assert [hit.message.text for hit in local.context(text, **NEW, read_only=True).recalled.hits] == hits


@pytest.mark.parametrize(
    ("passing", "threads"),
    [
        ([], ["by", "far"]),
        (["red fox"], ["old", "by"]),
        (["red fox", "a red fox"], ["old", "old", "by"]),
        (["red fox", "a hill", "the sea", "a red fox"], ["old", "old"]),
        (["the order 7 of old wine for you"], ["old", "by"]),
    ],
    ids=["none", "one", "two beside each other", "two apart", "a number"],
)
def test_two_hits_of_a_question_stand_apart_and_those_that_pass_count(
    make_memory: Make, passing: list[str], threads: list[str]
) -> None:
    memory = make_memory(embeddings=WordEmbeddings(model="all-minilm"), recall=RecallOptions())
    for thread, said in {"old": passing, "by": ["wind", "street"], "far": ["house"], "farther": ["rain"]}.items():
        memory.history.append(said, thread_id=thread, user_id="ann")
    for window in ((1, 0), (0, 1)):
        recalled = memory.context("red fox 7?", **NEW, message_range=window, read_only=True).recalled
        assert sorted(hit.thread_id for hit in recalled.hits) == sorted(threads)


def test_what_was_said_at_a_time_that_is_named_passes_however_far(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(model="all-minilm"), recall=RecallOptions())
    yesterday = [datetime.now(UTC) - timedelta(days=1)]
    memory.history.append([("user", "blue hill")], thread_id="t", user_id="ann", said_at=yesterday)
    for asked, number in (("Tell me of yesterday", 1), ("Tell me of it", 0)):
        assert len(memory.context(asked, **NEW, read_only=True).recalled.hits) == number


@pytest.mark.parametrize(
    ("said", "asked", "shown"),
    [
        (["I live in Berlin.", "We moved to Paris last week."], "Where do I live?", [0, 1]),
        (["Water the plants.", "Done.", "Feed the cat."], "What did you do with the plants?", [0, 1]),
        (["Fix bug 0.", "I changed parser.py.", "Fix bug 17.", "I changed net.py."], "Which files for bug 0?", [0, 1]),
        (["수업은 매주 화요일 저녁 일곱 시에 있어"], "수업 언제야?", [0]),
        (["我对花生过敏"], "我对什么过敏", [0]),
        (["Mam na imię Agnieszka"], "Jak mam na imię?", [0]),
    ],
)
def test_what_answers_is_shown_in_the_order_of_time(
    make_memory: Make, local_model: LocalEmbeddings, said: list[str], asked: str, shown: list[int]
) -> None:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    for at in range(0, len(said), 2):
        pair = [("user", text) if not place else ("assistant", text) for place, text in enumerate(said[at : at + 2])]
        memory.save_turn(pair, thread_id=f"t{at}", user_id="ann")
    others = ["The violin is out of tune.", "My nephew collects stamps.", "Ferries were cancelled in March."]
    memory.history.append(others, thread_id="others", user_id="ann")
    texts = [str(one.text) for one in memory.context(asked, **NEW, read_only=True).recalled.messages]
    assert [text for text in texts if text in said][: len(shown)] == [said[at] for at in shown]


THANKS = [
    *("thank you", "cảm ơn", "谢谢", "gracias", "धन्यवाद", "شكرا", "ধন্যবাদ", "obrigado"),
    *("спасибо", "ありがとう", "danke", "감사합니다", "merci", "teşekkürler", "grazie"),
]


def test_most_thanks_in_most_languages_are_silent(knowing: Memory, talk: Any) -> None:
    del talk
    found = {text: knowing.context(text, **NEW, read_only=True).recalled for text in THANKS}
    loud = [text for text, recalled in found.items() if recalled.rows]
    assert len(loud) <= len(found) // 3, loud


def test_what_is_far_and_what_does_not_stand_out_is_not_shown(make_memory: Make, local_model: LocalEmbeddings) -> None:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    memory.history.append([f"the red fox number {at}" for at in range(40)], thread_id="a", user_id="ann")
    shown = {text: memory.context(text, **NEW, read_only=True).recalled.rows for text in ("asdf qwer", "the red fox")}
    assert list(shown.values()) == [[], []]
    assert memory.context("the red fox?", **NEW, read_only=True).recalled.rows
    assert memory.recall.search("asdf qwer", user_id="ann").rows


class Strange(Embeddings):
    """A model under a name that nobody knows, whose vectors all point to one side."""

    def __init__(self) -> None:
        self.model, self.inner, self.calls = "a model of a stranger", LocalEmbeddings(), list[list[str]]()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(texts)
        return [[*vector, 1.2] for vector in self.inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.mark.parametrize("talk", ["en"], indirect=True)
def test_the_scale_of_a_strange_model_is_learned_once_an_index(make_memory: Make, talk: Any, raw: Redis) -> None:
    model = Strange()
    memory = make_memory(embeddings=model, recall=RecallOptions())
    said = [ROLES[one["role"]](one["text"]) for one in talk["messages"]]
    memory.history.append(said[:8], thread_id="a", user_id="ann")
    memory.context("Where do I live?", **NEW, read_only=True)
    key = memory._core.state.keys.vectors_floor
    assert raw.get(key) is None  # so few messages need no floor
    memory.history.append(said[8:], thread_id="a", user_id="ann")
    memory.context("Where do I live?", **NEW, read_only=True)
    memory.settled()
    floor = json.loads(raw.get(key) or "")["floor"]
    assert 0.6 < floor < 0.8  # of the texts that were stored, unrelated ones have .59
    assert memory.context("The elephants sing gloriously", **NEW, read_only=True).recalled.hits == []
    assert memory.context("What is my cat called?", **NEW, read_only=True).recalled.hits
    model.calls.clear()
    other = make_memory(embeddings=model, recall=RecallOptions())
    assert other.context("The elephants sing gloriously", **NEW, read_only=True).recalled.hits == []
    other.settled()
    assert list(map(len, model.calls)) == [1]
    raw.delete(key)
    other.recall.reindex()
    assert json.loads(raw.get(key) or "")["floor"] == pytest.approx(floor)


ALPS = "I went hiking in the Alps in May, Tom came along"
ASKED = [("user", "Where did I go hiking?"), ("assistant", "In the Alps.")]
CHAT: Any = {"thread_id": "chat", "user_id": "u"}


@pytest.fixture
def walks(make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    memory.save_turn([("user", ALPS), ("assistant", "Sounds great")], thread_id="may", user_id="u")
    for at in range(6):
        lines = [("user", f"Somebody else who knows buys {at} roses"), ("assistant", "Noted")]
        memory.save_turn(lines, thread_id=f"g{at}", user_id="u")
    return memory


def shown(memory: Memory, asked: Any = "Who else?", **more: Any) -> list[str]:
    return [str(one.text) for one in memory.context(asked, **CHAT, read_only=True, **more).recalled.messages]


def test_what_was_said_before_stands_in_the_callers_list(walks: Memory) -> None:
    before = [HumanMessage("Where did I go hiking?"), AIMessage("In the Alps.")]
    assert ALPS in shown(walks, [*before, HumanMessage("Who else?")])


def test_or_in_the_history_that_was_read(walks: Memory, trips: Trips) -> None:
    walks.save_turn(ASKED, **CHAT)
    assert ALPS in shown(walks)
    assert trips.of(lambda: shown(walks)) == 3  # one for both texts together
    assert trips.of(lambda: shown(walks, "I went hiking in the Alps, Tom came")) == 2  # something is near


def test_nothing_is_searched_with_it_where_nothing_was_found(walks: Memory, trips: Trips) -> None:
    asked = [HumanMessage("Where did I go hiking?"), AIMessage("In the Alps."), HumanMessage("Who else?")]
    assert trips.of(lambda: walks.context(asked, thread_id="chat", user_id="nobody")) == 1


def test_it_is_found_when_it_is_asked_again(walks: Memory) -> None:
    walks.save_turn(ASKED, **CHAT)
    walks.save_turn([("user", "Who else?"), ("assistant", "With friends.")], **CHAT)
    assert ALPS in shown(walks)


def test_what_it_finds_for_itself_stays(walks: Memory) -> None:
    def best() -> list[str]:
        hits = walks.context("Who else?", **CHAT, read_only=True).recalled.hits
        return [str(hit.message.text) for hit in hits]

    alone = best()
    walks.save_turn(ASKED, **CHAT)
    assert best()[:2] == alone[:2]
    assert ALPS in best()[2:]


def test_a_model_that_fails_at_the_second_call_costs_the_follow_up_alone(
    walks: Memory, make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(LocalEmbeddings):
        def embed_query(self, text: str) -> list[float]:
            if "hiking" in text:
                raise ConnectionError("away")
            return super().embed_query(text)

        embeds_alike = False

    walks.save_turn(ASKED, **CHAT)
    going_on = make_memory(embeddings=Failing(), on_error="log")
    assert shown(going_on)
    assert "without what its question follows up" in caplog.text
    with pytest.raises(EmbeddingError):
        shown(make_memory(embeddings=Failing(), on_error="raise"))
