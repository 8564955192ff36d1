"""What was said later goes first, and marks what it changes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict

from langchain_workingmem import Memory, Outdated, RecallResult
from langchain_workingmem._text.telling import telling_words
from langchain_workingmem.importers import header
from langchain_workingmem.mcp.answers import of_hits
from langchain_workingmem.recall import outdated
from langchain_workingmem.recall.outdated import outdates
from tests.helpers.trips import Trips

BLUE, GREEN = "My favourite colour is blue", "I changed my mind, my favourite colour is green now"
# fmt: off
CHANGED = [
("My favourite colour is blue.","I changed my mind, my favourite colour is green now."),
("I live in Munich.","I moved to Berlin last week."),
("The deadline for the report is March 3.","The deadline for the report moved to March 10."),
("I drink coffee every morning.","I no longer drink coffee."),
("My sneakers budget is $600","My sneakers budget is now $650."),
("My dentist appointment is at 3 PM.","My dentist appointment has been rescheduled to 4:30 PM."),
("I eat meat.", "I don't eat meat any more."),
("I have 3 cats.","I now have 4 cats!"),
("Meine Lieblingsfarbe ist Blau.","Meine Lieblingsfarbe ist jetzt Grün."),
("Ich wohne in München.","Ich bin nach Berlin gezogen."),
("Ich trinke jeden Tag Kaffee.","Ich trinke keinen Kaffee mehr."),
("Mein Budget ist 600 Euro.","Mein Budget ist jetzt 650 Euro."),
("Ma couleur préférée est le bleu.","Maintenant, ma couleur préférée est le vert."),
("J'habite à Lyon.","J'ai déménagé à Paris."),
("Je bois du café.","Je ne bois plus de café."),
("Mi color favorito es el azul.","Ahora mi color favorito es el verde."),
("Vivo en Madrid.","Me he mudado a Sevilla."),
("Bebo café.","Ya no bebo café."),
("Мой любимый цвет синий.","Теперь мой любимый цвет зелёный."),
("Я живу в Москве.","Я переехал в Казань."),
("Я пью кофе.","Я больше не пью кофе."),
("我最喜欢的颜色是蓝色。","我现在最喜欢的颜色是绿色。"),
("我住在北京。","我搬到上海了。"),
("好きな食べ物は寿司です。","今は好きな食べ物はラーメンです。"),
("私は東京に住んでいます。","大阪に引っ越しました。"),
("저는 서울에 살아요.","저는 부산으로 이사했어요."),
("내가 좋아하는 색은 파란색이야.","이제 내가 좋아하는 색은 초록색이야."),
]
UNSURE = [
    ("Room 1 is at 20 degrees", "Room 2 is now at 20 degrees"),
    ("The code for door A is 1234", "The code for door B is now 9999"),
    ("My favourite fruit is apples", "My favourite colour is now apples"),
    ("My least favourite colour is blue", "My favourite colour is now green"),
("My favourite colour is blue.","My favourite colour is blue now."),
("I like blue.","I also like green now."),
("My favourite colour is blue.","I also like green now."),
("I live in Munich.","I might move to Berlin next year."),
("I live in Munich.","I plan to have moved to Berlin by May."),
("I live in Munich.","Anna moved to Berlin."),
("I live in Munich.","My brother moved to Berlin."),
("I live in Munich.","I moved to a new office."),
("I live in Munich.","I moved to Munich in May."),
("I live in Munich.","Have I moved to Berlin?"),
("I live in Munich.","I moved to Berlin, she said."),
("I live in Munich.",'"I moved to Berlin" is the first line of my novel.'),
("My sister's favourite colour is blue.","My favourite colour is green now."),
("Her favourite colour is blue.","My favourite colour is green now."),
("My favourite colour is blue.","My favourite team is now Ajax."),
("My favourite colour is blue.","Is my favourite colour green now?"),
("Chapter 3 is done.","Chapter 4 is now done."),
("Order 123 is late.","Order 124 is late now."),
("Chapter 3 is 10 pages.","Chapter 4 is now 12 pages."),
("I walk my sister's dog every day.","I no longer have a dog."),
("My dog is brown.","My dog is sick now."),
("My boss is Anna.","My boss is sick now."),
("I tried Thai food.","I tried Korean food now."),
("My budget is $600.","My budget would now be $650."),
("My budget for shoes is $600.","My budget for books is now $650."),
("Ich wohne in München.","Ich möchte nach Berlin umgezogen sein."),
("Ich wohne in München.","Ich bin in ein neues Büro umgezogen."),
("Meine Lieblingsfarbe ist Blau.","Ich mag jetzt auch Grün."),
("J'habite à Lyon.","Je voudrais déménager à Paris."),
("Vivo en Madrid.","Quizás me he mudado a Sevilla."),
("Я живу в Москве.","Анна переехала в Казань."),
("我住在北京。","我打算搬到上海。"),
("我喜欢蓝色。","我现在也喜欢绿色。"),
("私は東京に住んでいます。","来年大阪に引っ越すかもしれません。"),
("저는 서울에 살아요.","저는 부산으로 이사할 계획이에요."),
("I drink coffee every morning with my sister in town.","I no longer drink tea."),
("I no longer drink coffee.","I now drink coffee."),
("I don't eat meat.","I no longer eat meat."),
("I never drink coffee.","I no longer drink coffee."),
("I have no cats.","I no longer have cats."),
("I'm not living in Munich.","I now live in Berlin."),
("My favourite colour is not blue.","My favourite colour is now green."),
("My budget is $600.","My budget is not $650 now."),
("Ich esse kein Fleisch.","Ich esse kein Fleisch mehr."),
("Je ne bois pas de café.","Je ne bois plus de café."),
("No bebo café.","Ya no bebo café."),
("Я не пью кофе.","Я больше не пью кофе."),
("我最喜欢的颜色不是蓝色。","我现在最喜欢的颜色是绿色。"),
]
# fmt: on


@pytest.mark.parametrize(("older", "newer"), CHANGED)
def test_one_differing_value_or_a_negation_is_sure(older: str, newer: str) -> None:
    assert outdates(newer, older) == newer
    assert outdates(older, newer) is None


@pytest.mark.parametrize(("older", "newer"), UNSURE)
def test_plans_additions_questions_and_what_others_say_are_not(older: str, newer: str) -> None:
    assert outdates(newer, older) is None


def test_the_sentence_that_says_so_is_named() -> None:
    assert outdates(f"Thanks a lot! {GREEN}. What fits it?", f"Hello. {BLUE}.") == f"{GREEN}."


@pytest.mark.parametrize("sign", [", ", ". "])
def test_each_clause_is_read_once(monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    read: list[str] = []

    def words(text: str) -> tuple[str, ...]:
        read.append(text)
        return telling_words(text)

    monkeypatch.setattr(outdated, "telling_words", words)
    parts = [f"the cat {at:03} sat" for at in range(100)]
    assert outdates("now " + sign.join(parts), sign.join(parts)) is None
    assert len(read) <= 2 * len(parts)


# ---------------------------------------------------------------------- what comes back


def say(memory: Memory, *texts: str | BaseMessage, day: int = 1, thread: str = "t") -> None:
    """Store messages, a minute apart."""
    at = datetime(2026, 3, day, tzinfo=UTC)
    given = [HumanMessage(one) if isinstance(one, str) else one for one in texts]
    records = [
        {
            "kind": "message",
            "thread_id": thread,
            "message": message_to_dict(one.model_copy(update={"id": f"{thread}-{day}-{number}"})),
            "stored_at": (at + timedelta(minutes=number)).isoformat(),
        }
        for number, one in enumerate(given)
    ]
    memory.users.load([header("ann"), {"kind": "thread", "id": thread}, *records])


def found(memory: Memory, question: str = "What is my favourite colour?", top_k: int = 4) -> RecallResult:
    return memory.recall.search(question, resource_id="ann", top_k=top_k)


def texts(result: RecallResult) -> list[str]:
    return [str(hit.message.text) for hit in result]


def test_what_was_said_later_goes_first_and_marks_the_older(memory: Memory) -> None:
    say(memory, BLUE)
    say(memory, GREEN, day=2, thread="other")
    newer, older = found(memory)
    assert (newer.message.text, older.message.text) == (GREEN, BLUE)
    assert newer.score >= older.score
    assert newer.outdated_by is None
    since = datetime(2026, 3, 2, tzinfo=UTC)
    assert older.outdated_by == Outdated(text=GREEN, since=since, thread_id="other", message_id=newer.message.id)


def test_the_order_of_time_is_that_of_the_thread(memory: Memory) -> None:
    say(memory, GREEN, BLUE)
    assert all(hit.outdated_by is None for hit in found(memory))


def test_the_newer_takes_the_last_place(memory: Memory) -> None:
    say(memory, BLUE, GREEN)
    assert texts(found(memory, top_k=1)) == [GREEN]
    better = "What is my favourite colour?"
    say(memory, better, day=3, thread="other")
    assert texts(found(memory, top_k=2)) == [better, GREEN]


def test_a_change_with_the_words_of_the_question_goes_first_unmarked(memory: Memory) -> None:
    old = "The sprint deadline is April 1, and I plan three sprints"
    say(memory, old, "I need to adjust the board to the updated sprint deadline of April 5, what helps me to do so?")
    newer, older = found(memory, "When is the sprint deadline?")
    assert (older.message.text, older.outdated_by, newer.outdated_by) == (old, None, None)


@pytest.mark.parametrize(
    "later", [AIMessage(GREEN), HumanMessage(GREEN, name="bob"), HumanMessage("I like the colour green, too")]
)
def test_others_and_additions_change_nothing(memory: Memory, later: BaseMessage) -> None:
    say(memory, BLUE, later)
    assert all(hit.outdated_by is None for hit in found(memory))


def test_the_mark_goes_with_the_newer_message(memory: Memory) -> None:
    say(memory, BLUE, GREEN)
    newer, _ = found(memory)
    memory.history.delete([str(newer.message.id)], thread_id="t", resource_id="ann")
    (older,) = found(memory)
    assert older.outdated_by is None


def test_a_question_about_a_time_keeps_its_order(memory: Memory) -> None:
    say(memory, BLUE)
    say(memory, GREEN, day=20)
    hits = memory.recall.search(
        "What was my favourite colour on March 1?", resource_id="ann", now=datetime(2026, 3, 21, tzinfo=UTC)
    )
    assert texts(hits)[0] == BLUE


@pytest.mark.parametrize("max_tokens", [20, 25, 30, 40, 60])
def test_a_budget_leaves_the_older_out_first(memory: Memory, max_tokens: int) -> None:
    say(memory, BLUE, GREEN)
    hits = memory.recall.search("favourite colour", resource_id="ann", max_tokens=max_tokens)
    assert texts(hits) in ([GREEN], [GREEN, BLUE])


def test_a_prompt_shows_it_as_one_attribute(memory: Memory) -> None:
    say(memory, BLUE, f"{GREEN} <&")
    block = memory.context("What is my favourite colour?", thread_id="new", resource_id="ann").recalled.as_text()
    assert re.findall(r'outdated="([^"]*)"', block) == [f"2026-03-01: {GREEN} &lt;&amp;"]
    assert block.index(BLUE) < block.rindex(GREEN)


def test_documents_and_clients_have_it_too(memory: Memory) -> None:
    say(memory, BLUE, GREEN)
    result = found(memory)
    assert [one.metadata.get("outdated") for one in result.to_documents()] == [None, f"2026-03-01: {GREEN}"]
    data = of_hits(result, None)[1]
    assert [hit.get("outdated") for hit in data["hits"]] == [None, f"2026-03-01: {GREEN}"]


def test_it_takes_no_round_trip(memory: Memory, trips: Trips) -> None:
    say(memory, BLUE, GREEN, *(f"a favourite colour is number {at}" for at in range(5)))
    assert trips.of(lambda: found(memory, top_k=1)) == 2


@pytest.mark.parametrize("max_tokens", range(13, 40, 3))
def test_an_older_message_that_does_not_fit_takes_nothing_from_the_newer(memory: Memory, max_tokens: int) -> None:
    say(memory, BLUE)
    say(memory, GREEN, day=2, thread="other")
    asked = "What is my favourite colour?"
    turn = memory.context(asked, thread_id="new", resource_id="ann", max_tokens=max_tokens)
    assert turn.recalled
    assert texts(turn.recalled)[:1] == [GREEN]
