"""Notes that replace known ones, and the question that the observer is shown as reference."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.options import Scope
from tests.helpers.archives import unsealed
from tests.helpers.models import Scripted
from tests.helpers.types import Make
from tests.observations.test_lifecycle import everything

pytestmark = pytest.mark.programs

SCOPES: tuple[Scope, ...] = ("thread", "resource")
each_scope = pytest.mark.parametrize("scope", SCOPES)
IDS: Any = {"thread_id": "t", "resource_id": "u"}


def options(scope: Scope, *answers: Any, **more: Any) -> ObservationOptions:
    settings: dict[str, Any] = {"message_tokens": 20, "keep_tokens": 0, "background": False, **more}
    return ObservationOptions(model=Scripted.says(*answers), scope=scope, **settings)


def talk(memory: Memory, text: str, at: int, **ids: str) -> None:
    """Store a turn, and observe the one before it."""
    said = [HumanMessage(text, id=f"m{at}"), AIMessage("ok", id=f"a{at}")]
    memory.history.append(said, **(ids or IDS))
    memory.observations.observe((ids or IDS)["thread_id"])


def texts(memory: Memory) -> list[str]:
    return [one.text for one in memory.observations.get(**IDS)]


def prompts(memory: Memory) -> list[str]:
    model: Any = memory._core.state.observations.model  # type: ignore[union-attr]
    return [str(call[1].text) for call in model.seen]


ACORN, BIRCH, CEDAR = "works at Acorn", "works at Birch now, no longer at Acorn", "works at Cedar now"
ANSWERS = (f"! [1] {ACORN}", f"! [1, replaces k1] {BIRCH}", f"! [1] [k1] {CEDAR}")


@pytest.fixture
def moved(make_memory: Make) -> Any:
    """Make a memory in which a later note replaces the first one."""

    def made(scope: Scope, *answers: Any, **more: Any) -> Memory:
        memory = make_memory(observations=options(scope, *(answers or ANSWERS), **more))
        for at, text in enumerate(("I work at Acorn", "I work at Birch now", "bye")):
            talk(memory, text, at)
        return memory

    return made


@each_scope
def test_a_replaced_note_is_not_shown_and_known_ones_have_numbers(moved: Any, scope: Scope) -> None:
    memory = moved(scope)
    assert re.search(rf"^! \[k1\] [-\d]+ [:\d]+ {ACORN}$", prompts(memory)[1], re.MULTILINE)
    assert texts(memory) == [BIRCH]
    context = memory.context("and now?", **IDS)
    assert [one.text for one in context.observations.observations] == [BIRCH]
    assert ACORN not in str(context.messages[0].text).replace(BIRCH, "")
    (line,) = memory.observations.get(**IDS)
    assert [id for _, id in line.sources] == ["m1", "m0"]  # both said what it says
    assert line.said_at == memory.history.page("t").items[2].stored_at


@each_scope
def test_a_note_that_is_shown_again_because_a_branch_left_the_one_that_replaced_it_is_not_made_anew(
    make_memory: Make, scope: Scope
) -> None:
    """Also where that one came from more messages than one line cites, and left lines without words for them."""
    memory = make_memory(observations=options(scope, *ANSWERS[:2], "- [1] stays"))
    for at, text in enumerate(("I work at Acorn", f"I work at Birch now {'word ' * 2000}", "bye")):
        talk(memory, text, at)
    assert texts(memory) == [BIRCH]
    begin = memory.history.messages("t")[:2]
    context = memory.context([*begin, HumanMessage("I stay", id="q")], **IDS)
    memory.save_turn([*context.messages[-1:], AIMessage("fine", id="b")], **IDS)
    assert texts(memory) == [ACORN]
    talk(memory, "and so on", 9)
    assert texts(memory) == [ACORN, "stays"]
    assert "I work at" not in prompts(memory)[-1].partition("<message")[2]


@each_scope
@pytest.mark.parametrize("how", ["delete", "update"])
def test_the_word_of_a_person_wins_over_a_note_in_flight_that_replaces_the_line(
    make_memory: Make, scope: Scope, how: str
) -> None:
    """The observer has read the line before: what it writes may have the words that the person took back."""

    def meanwhile(_: list[BaseMessage]) -> str:
        (line,) = memory.observations.get(**IDS)
        if how == "delete":
            memory.observations.delete(line.id, **IDS)
        else:
            memory.observations.update(line.id, "works at Maple", **IDS)
        return ANSWERS[1]

    again = "! [1] works at Birch" if how == "delete" else "! [1, replaces k1] works at Birch, was at Maple"
    memory = make_memory(observations=options(scope, ANSWERS[0], meanwhile, again))
    for at, text in enumerate(("I work at Acorn", "I work at Birch now", "bye")):
        talk(memory, text, at)
    assert texts(memory) == [again.partition("] ")[2]]
    assert ("works at Maple" in prompts(memory)[-1]) == (how == "update")
    assert "works at Acorn" not in prompts(memory)[-1]
    assert memory.observations.get(**IDS).pending_tokens < 20


@pytest.mark.parametrize("how", ["delete", "update"])
def test_the_word_of_a_person_wins_over_a_note_that_was_read_ahead(
    make_memory: Make, raw: redis.Redis, prefix: str, how: str
) -> None:
    def said(first: int, count: int) -> None:
        for at in range(first, first + count):
            memory.save_turn([HumanMessage(f"{at} {'word ' * 30}"), AIMessage(f"{at} {'word ' * 30}")], **IDS)
            memory.settled()

    limits = {"background": True, "message_tokens": 800, "keep_tokens": 120, "batch_tokens": 200}
    first = make_memory(observations=options("thread", f"! [1] {ACORN}"))
    talk(first, "I work at Acorn", 0)
    talk(first, "bye", 1)
    memory = make_memory(observations=options("thread", f"! [1, replaces k1] {BIRCH}", **limits))
    model: Any = memory._core.state.observations.model  # type: ignore[union-attr]
    at = 1
    while model.script:
        said(at, 1)
        at += 1
    assert BIRCH in str(raw.hgetall(f"{prefix}:observations:t:{{t}}"))
    assert texts(memory) == [ACORN]
    line = memory.observations.get(**IDS).observations[0]
    if how == "delete":
        memory.observations.delete(line.id, **IDS)
    else:
        memory.observations.update(line.id, "works at Maple", **IDS)
    assert BIRCH not in str(raw.hgetall(f"{prefix}:observations:t:{{t}}"))
    model.script += ["! [1] more"] * 20
    memory.observations.observe("t")
    assert {*texts(memory)} == {"more", *(["works at Maple"] if how == "update" else [])}


@each_scope
def test_a_chain_of_replaced_notes_shows_the_last_one(moved: Any, scope: Scope) -> None:
    memory = moved(scope)
    talk(memory, "I work at Cedar now", 3)
    (line,) = memory.observations.get(**IDS)
    assert line.text == CEDAR
    assert [one.text for one in memory.observations.delete(line.id, **IDS)] == [BIRCH]


@each_scope
def test_a_replaced_note_returns_when_a_person_deletes_the_replacing_one(moved: Any, scope: Scope) -> None:
    memory = moved(scope)
    (line,) = memory.observations.get(**IDS)
    before = memory.observations.get(**IDS).revision
    assert [one.text for one in memory.observations.delete(line.id, **IDS)] == [ACORN]
    assert [one.text for one in memory.observations.revert(before, **IDS)] == [BIRCH]
    kept = memory.observations.history(**IDS)
    assert [[one.text for one in log] for log in kept] == [[BIRCH], [ACORN], [BIRCH], [ACORN]]


@each_scope
def test_a_correction_keeps_what_a_note_replaces(moved: Any, scope: Scope) -> None:
    memory = moved(scope)
    (line,) = memory.observations.get(**IDS)
    assert [one.text for one in memory.observations.update(line.id, "corrected", **IDS)] == ["corrected"]


@each_scope
@pytest.mark.parametrize("gone", ["m0", "m1"])
def test_nothing_is_left_of_a_deleted_message_in_a_note_that_replaces(
    moved: Any, raw: redis.Redis, prefix: str, scope: Scope, gone: str
) -> None:
    """Neither of what the old one says, nor of the new one; and each other message is still shown."""
    memory = moved(scope)
    memory.history.delete([gone], **IDS)
    word = {"m0": b"Acorn", "m1": b"Birch"}[gone]
    assert word not in everything(raw, prefix)
    context = memory.context("and now?", **IDS)
    shown = " ".join([*(str(one.text) for one in context.messages), *(one.text for one in context.observations)])
    assert {"m0": "Birch", "m1": "Acorn"}[gone] in shown


@each_scope
def test_what_was_deleted_while_the_model_worked_is_not_cited(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: Scope
) -> None:
    other = make_memory()

    def answer(_: list[BaseMessage]) -> str:
        other.history.delete(["m0"], **IDS)
        return ANSWERS[1]

    memory = make_memory(
        observations=options(scope, ANSWERS[0], answer, "! [1] works at Birch", "! [1] works at Birch")
    )
    for at, text in enumerate(("I work at Acorn", "I work at Birch now", "bye")):
        talk(memory, text, at)
    assert b"Acorn" not in everything(raw, prefix)
    assert texts(memory) == ["works at Birch"]


@each_scope
def test_a_note_that_replaces_nothing_known_is_a_note(moved: Any, scope: Scope) -> None:
    memory = moved(scope, ANSWERS[0], "! [1, replaces k7] works at Birch")
    assert texts(memory) == [ACORN, "works at Birch"]


def test_a_note_of_another_conversation_is_not_replaced(make_memory: Make) -> None:
    """Its messages may be deleted at any time, in another slot of a cluster."""
    memory = make_memory(observations=options("resource", ANSWERS[0], ANSWERS[1]))
    for thread, text in (("s", "I work at Acorn"), ("s", "bye"), ("t", "I work at Birch now"), ("t", "bye")):
        talk(memory, text, 0 if text != "bye" else 1, thread_id=thread, resource_id="u")
    assert texts(memory) == [ACORN, BIRCH]


@each_scope
def test_condensing_keeps_what_is_replaced_away(make_memory: Make, scope: Scope) -> None:
    moves = (one.replace("!", "-", 1) for one in ANSWERS[:2])  # high lines are never condensed
    answers = (*moves, "- [1] reads", "- [1,2] works at Birch and reads", "- [1] sings")
    memory = make_memory(observations=options(scope, *answers, observation_tokens=14))
    for at, text in enumerate(("I work at Acorn", "I work at Birch now", "I read", "I sing", "bye")):
        talk(memory, text, at)
    assert texts(memory) == ["works at Birch and reads", "sings"]


@each_scope
def test_exports_bring_replaced_notes_back_behind_their_replacement(moved: Any, scope: Scope) -> None:
    memory = moved(scope)
    records = unsealed(memory.export_resource("u"))
    memory.delete_resource("u")
    memory.import_resource(records)
    assert texts(memory) == [BIRCH]
    (line,) = memory.observations.get(**IDS)
    assert [one.text for one in memory.observations.delete(line.id, **IDS)] == [ACORN]


def test_a_clone_has_the_same_view(moved: Any) -> None:
    memory = moved("thread")
    memory.threads.clone("t", new_thread_id="copy", resource_id="u")
    copy: Any = {"thread_id": "copy", "resource_id": "u"}
    assert [one.text for one in memory.observations.get(**copy)] == [BIRCH]


# ---------------------------------------------------------------------- the question


def working(steps: int, first: int = 0) -> list[BaseMessage]:
    found: list[BaseMessage] = []
    for at in range(first, first + steps):
        call = {"name": "look", "args": {"at": at}, "id": f"c{at}"}
        found += [
            AIMessage("", tool_calls=[call], id=f"call{at}"),
            ToolMessage("x" * 80, tool_call_id=f"c{at}", id=f"r{at}"),
        ]
    return found


def questions(prompt: str) -> list[str]:
    return re.findall(r"<question>(.*?)</question>", prompt)


@each_scope
def test_a_batch_that_begins_inside_a_turn_is_shown_the_question(make_memory: Make, scope: Scope) -> None:
    memory = make_memory(observations=options(scope, *["- [1] looks"] * 9, batch_tokens=60, message_tokens=40))
    asked = [HumanMessage("please find <it>", id="q"), HumanMessage("it is blue", id="p")]
    memory.history.append([HumanMessage("hi", id="h"), AIMessage("hi", id="i"), *asked, *working(6)], **IDS)
    memory.observations.observe("t")
    seen = prompts(memory)
    assert len(seen) >= 3
    assert [questions(one) for one in seen] == [["please find &lt;it&gt;", "it is blue"]] * len(seen)
    assert not any(re.search("<message[^>]*>please find", one) for one in seen)
    assert seen[0].index(">hi</message>") < seen[0].index("please find") < seen[0].index("look(")
    assert seen[1].index("please find") < seen[1].index("<message ")


def test_a_question_that_was_deleted_is_not_shown(make_memory: Make) -> None:
    memory = make_memory(observations=options("thread", *["- [1] looks"] * 9, batch_tokens=60, message_tokens=40))
    asked = [HumanMessage("it is blue", id="p"), HumanMessage("go", id="o")]
    memory.history.append([*asked, *working(6)], **IDS)
    memory.history.delete(["p"], **IDS)
    memory.observations.observe("t")
    found = [questions(one) for one in prompts(memory)]
    assert found[-1] == ["go"]
    assert "blue" not in str(prompts(memory))


def test_a_question_that_a_provider_refuses_does_not_keep_its_turn_from_being_read(make_memory: Make) -> None:
    class RefusedError(Exception):
        status_code = 400

    def answer(messages: list[BaseMessage]) -> Any:
        return RefusedError("filtered") if "poison" in str(messages[1].text) else "- [1] looks"

    memory = make_memory(observations=options("thread", *[answer] * 20, batch_tokens=60, message_tokens=40))
    memory.history.append([HumanMessage("a poison", id="q"), *working(6)], **IDS)
    log = memory.observations.observe("t")
    assert [one.text for one in log] == ["looks"] * len(log)
    assert [questions(one) for one in prompts(memory)][:3] == [["a poison"], [], ["a poison"]]
