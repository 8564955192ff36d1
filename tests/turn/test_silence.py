# ruff: noqa: RUF001 - marks of Chinese and Japanese
"""A turn shows nothing where nothing is asked: on the talk in benchmarks/talk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from redis import Redis

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions
from langchain_workingmem.recall.hits import Gate
from langchain_workingmem.recall.ranking import Floor
from langchain_workingmem.recall.reindex import ASKED_AND_TOLD, floor_between, floor_of
from tests.helpers.types import Make

TALK = Path(__file__).parents[2] / "benchmarks/talk"
ROLES: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}
NEW: Any = {"thread_id": "new", "resource_id": "ann"}


@pytest.fixture(params=["en", "de", "zh"])
def talk(request: pytest.FixtureRequest) -> Any:
    found = json.loads((TALK / f"{request.param}.json").read_text(encoding="utf-8"))
    found["turns"] = [
        one for one in found["turns"] if one["half"] == "tune"
    ]  # who tunes sees no turn of the other half
    return found


@pytest.fixture
def knowing(make_memory: Make, local_model: LocalEmbeddings, talk: Any) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    for thread in {one["thread"]: None for one in talk["messages"]}:
        messages = [
            ROLES[one["role"]](one["text"], id=one["id"]) for one in talk["messages"] if one["thread"] == thread
        ]
        memory.history.append(messages, thread_id=thread, resource_id="ann")
    return memory


def shown(memory: Memory, turn: Any, key: str = "text") -> set[str | None]:
    before = [ROLES[one["role"]](one["text"]) for one in turn.get("before", ()) if key == "text"]
    found = memory.context([*before, HumanMessage(turn[key])], **NEW, read_only=True).recalled
    assert bool(found.hits) == (found.silent is None)
    return {message.id for message in found.messages}


def test_small_talk_thanks_and_orders_show_nothing(knowing: Memory, talk: Any) -> None:
    turns = [one for one in talk["turns"] if one["kind"] in {"small_talk", "thanks", "order"}]
    loud = [one["text"] for one in turns if shown(knowing, one)]
    assert len(loud) <= len(turns) // 5, loud


def test_answers_are_shown(knowing: Memory, talk: Any) -> None:
    turns = [one for one in talk["turns"] if one["kind"] == "said"]
    found = [one for one in turns if shown(knowing, one) & {*one["expects"]}]
    assert len(found) >= len(turns) // 2


def test_follow_ups_find_what_the_whole_question_finds(knowing: Memory, talk: Any) -> None:
    turns = [one for one in talk["turns"] if one["kind"] == "follow_up"]
    wholes = [one for one in turns if shown(knowing, one, "whole") & {*one["expects"]}]
    assert len([one for one in wholes if shown(knowing, one) & {*one["expects"]}]) >= len(wholes) * 0.6


@pytest.fixture
def local(make_memory: Make, local_model: LocalEmbeddings) -> Memory:
    memory = make_memory(embeddings=local_model, recall=RecallOptions())
    lines = [
        ("user", "My dog is called Nougat."),
        ("assistant", "Working memory is updated."),
        ("user", "I eat no walnuts."),
    ]
    memory.save_turn(lines, thread_id="old", resource_id="ann")
    return memory


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("thanks, bye!", "no words"),
        ("asdf qwer", "not near"),
        ("Sort this list: dog, cat, fox", "not near"),
        ("What is my dog called?", None),
    ],
)
def test_an_empty_recall_says_why(local: Memory, text: str, silent: str | None) -> None:
    assert local.context(text, **NEW).recalled.silent == silent


def test_each_hit_is_cut_for_itself(local: Memory) -> None:
    assert [hit.message.text for hit in local.context("What is my dog called?", **NEW).recalled.hits] == [
        "My dog is called Nougat."
    ]


@pytest.mark.parametrize(
    ("told", "asked", "thanks"),
    [
        ("我住在上海的静安区。", "我住在哪里？", "真的吗？"),
        ("我叫李小明。", "我叫什么？", "你好吗？"),
        ("好きな色は青です。", "好きな色は何ですか？", "いいですか？"),
    ],
)
def test_a_question_may_ask_for_one_character(local: Memory, told: str, asked: str, thanks: str) -> None:
    local.save_turn([("user", told), ("assistant", "OK")], thread_id="home", resource_id="ann")
    assert local.context(asked, **NEW).recalled.hits[0].message.text == told
    assert local.context(thanks, thread_id="other", resource_id="ann").recalled.silent == "no words"


@pytest.mark.parametrize(
    ("told", "now", "asked"),
    [
        ("我的预算是五千元。", "我把预算提高到八千元了。", "我的预算是多少？"),
        ("予算は五万円です。", "予算を八万円に上げました。", "予算はいくらですか？"),
    ],
)
def test_a_raised_budget_goes_first(local: Memory, told: str, now: str, asked: str) -> None:
    for number, text in enumerate([told, now]):
        local.save_turn([("user", text)], thread_id=f"budget-{number}", resource_id="ann")
    assert [hit.message.text for hit in local.context(asked, **NEW).recalled.hits][:2] == [now, told]


def test_a_search_and_a_threshold_have_no_gate(local: Memory) -> None:
    assert local.recall.search("thanks, bye!", resource_id="ann").hits
    assert local.context("thanks, bye!", **NEW, threshold=0.0).recalled.hits


def test_a_follow_up_is_searched_with_the_question_before_it(local: Memory) -> None:
    local.context("What is my dog called?", **NEW)  # this process was asked that last
    again = local.context("and why?", **NEW).recalled
    assert "My dog is called Nougat." in [message.text for message in again.messages]
    other = local.context("and why?", thread_id="another", resource_id="ann").recalled
    assert other.silent == "no words"


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
    memory.history.append(said[:8], thread_id="a", resource_id="ann")
    memory.context("Where do I live?", **NEW, read_only=True)
    key = memory._core.state.keys.vectors_scale
    assert raw.get(key) is None  # so few messages need no scale
    memory.history.append(said[8:], thread_id="a", resource_id="ann")
    memory.context("Where do I live?", **NEW, read_only=True)
    memory.settled()
    worded, alone = json.loads(raw.get(key) or "")["floor"]
    assert 0.6 < worded < alone < 0.8  # of the texts that were stored, unrelated ones have .59
    assert memory.context("The elephants sing gloriously", **NEW, read_only=True).recalled.silent == "not near"
    assert memory.context("What is my cat called?", **NEW, read_only=True).recalled.hits
    model.calls.clear()
    other = make_memory(embeddings=model, recall=RecallOptions())
    assert other.context("The elephants sing gloriously", **NEW, read_only=True).recalled.silent == "not near"
    other.settled()
    assert list(map(len, model.calls)) == [1]
    raw.delete(key)
    other.recall.reindex()
    assert json.loads(raw.get(key) or "")["floor"] == pytest.approx([worded, alone])


@pytest.mark.parametrize("distance", ["cosine", "ip"])
def test_the_scale_that_is_learned_is_near_what_was_measured(distance: str) -> None:
    asked, told = (np.array(LocalEmbeddings().embed_documents(list(one))) for one in zip(*ASKED_AND_TOLD, strict=True))
    measured = floor_of("wordllama-l2-supercat-256") or ()
    assert [*floor_between(asked, told, distance)] == pytest.approx([*measured], abs=0.04)
    assert floor_between(asked * 0, told * 0, distance) == (0, 0)


@pytest.mark.parametrize("talk", ["en"], indirect=True)
def test_a_model_in_trouble_teaches_no_scale(make_memory: Make, talk: Any, raw: Redis) -> None:
    model = Strange()
    memory = make_memory(embeddings=model, recall=RecallOptions())
    memory.history.append(
        [ROLES[one["role"]](one["text"]) for one in talk["messages"]], thread_id="a", resource_id="ann"
    )
    good = model.embed_documents

    def cut(texts: list[str]) -> list[list[float]]:
        return [vector[:8] if len(texts) > 20 else vector for vector in good(texts)]

    model.embed_documents = cut  # type: ignore[method-assign]
    assert memory.context("Where do I live?", **NEW, read_only=True).recalled.hits
    memory.settled()
    assert raw.get(memory._core.state.keys.vectors_scale) is None
    assert memory.context("What is my cat called?", **NEW, read_only=True).recalled.hits


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("How was your dog's day?", "not near"),  # about the one who is asked
        ("How was your dog Nougat's day?", "not near"),
        ("Is your dog called Nougat?", None),
        ("You like cake and cats, don't you?", "not near"),
        ("You eat walnuts, don't you?", None),
        ("What's 10 + 30?", "not near"),
        ("Thanks, Nougat sleeps.", "not near"),
        ("🙂", "no words"),
    ],
)
def test_what_is_about_itself_needs_most_of_the_words(local: Memory, text: str, silent: str | None) -> None:
    local.save_turn([("user", "Nougat has a birthday in 10 days at 30 past.")], thread_id="t", resource_id="ann")
    assert local.context(text, **NEW, read_only=True).recalled.silent == silent


@pytest.mark.parametrize(
    ("asked", "done", "question"),
    [
        ("Book me a hut near Cortina for July.", "Done: a bed at Rifugio Averau.", "Did you book the hut?"),
        ("What would a new kitchen cost?", "Around 14,000 euros.", "What was your estimate for the kitchen?"),
        ("Buche mir eine Hütte im Juli.", "Erledigt: ein Bett im Rifugio.", "Hast du die Hütte gebucht?"),
        ("帮我订七月的小屋。", "已预订:阿维劳山屋。", "你订了小屋吗？"),
    ],
)
def test_what_the_assistant_did_for_the_user_is_shown(local: Memory, asked: str, done: str, question: str) -> None:
    local.save_turn([("user", asked), ("assistant", done)], thread_id="task", resource_id="ann")
    assert done in [message.text for message in local.context(question, **NEW, read_only=True).recalled.messages]
    talk: Any = {"thread_id": "talk", "resource_id": "ann"}
    assert local.context("Do you like huts and kitchens?", **talk, read_only=True).recalled.silent == "not near"


@pytest.mark.parametrize(
    ("text", "near", "is_shown"),
    [
        ("Pretzel hates the vet.", 0.4, True),
        ("Pretzel hates the vet.", 0.1, False),  # two words are an accident where the sense is another
        ("Ten minutes until Friday.", 0.4, False),  # times alone
        ("Friday, Pretzel!", 0.4, True),
        ("Pretzel sleeps.", 0.4, True),  # half of the words
        ("Pretzel sleeps near warm radiators.", 0.4, False),
    ],
)
def test_a_statement_shares_words_that_tell_something(text: str, near: float, *, is_shown: bool) -> None:
    gate = Gate.of(text, Floor(0.2, 0.3), 0.1)
    assert gate.kind == "statement"
    assert gate.shares_enough("In ten minutes, no: on Friday, Pretzel goes to the vet.", near) == is_shown


@pytest.mark.parametrize(("ordinary", "is_shown"), [(0.1, True), (0.5, False)])
def test_half_of_the_words_are_few_in_a_language_that_the_model_does_not_know(
    ordinary: float, *, is_shown: bool
) -> None:
    gate = Gate.of("Pretzel sleeps.", Floor(0.2, 0.3), ordinary)
    assert gate.shares_enough("Pretzel goes to the vet.", 0.4) == is_shown
    assert gate.shares_enough("Pretzel sleeps at the vet's.", 0.4)


def test_a_number_is_a_word_of_its_own() -> None:
    gate = Gate.of("What is 23 * 48 + 17?", None, None)
    assert (gate.kind, gate.shares_enough("23 * 48 + 17 = 1121", 0.9)) == ("order", False)
    assert not Gate.of("Where is room 23?", Floor(0.2, 0.3), 0.1).shares_enough("It costs 2340 euros.", 0.1)


@pytest.mark.parametrize(
    "asked", ["Where am I 3-5 May?", "What do I do on 3-5 May?", "What is c01x00t47?", "Who won 3-2?"]
)
def test_a_pair_of_numbers_that_somebody_wrote_is_found(
    make_memory: Make, local_model: LocalEmbeddings, asked: str
) -> None:
    memory = make_memory(embeddings=local_model)
    told = ("The hut in Cortina is booked for 3-5 May.", "My passport number is C01X00T47.", "We lost 3-2 against Ulm.")
    for at, text in enumerate(told):
        turn = [HumanMessage(text, id=f"t{at}"), AIMessage("Noted.")]
        memory.save_turn(turn, thread_id=f"of {at}", resource_id="ann")
    found = shown(memory, {"text": asked})
    assert "t0" in found if "May" in asked else "t1" in found if "c01" in asked else "t2" in found
    assert not shown(memory, {"text": "What is 12-5?"})


@pytest.mark.parametrize("asked", ["Was ist am 12.03.2027?", "Was ist am 12. März 2027?", "What is on 12 March 2027?"])
def test_a_question_about_nothing_but_a_date_finds_it(
    make_memory: Make, local_model: LocalEmbeddings, asked: str
) -> None:
    memory = make_memory(embeddings=local_model)
    for text in ("Die Lieferung kommt am 12.03.2027.", "Please print the labels."):
        memory.save_turn([HumanMessage(text, id=text[:3]), AIMessage("Noted.")], thread_id=text[:3], resource_id="ann")
    assert not shown(memory, {"text": "How was the weekend?"})
    assert "Die" in shown(memory, {"text": asked})
