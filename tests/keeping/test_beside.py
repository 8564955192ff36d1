"""The observer as keeper: values and notes come from one answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.observations import reflecting
from langchain_workingmem.observations.observing import observe
from langchain_workingmem.options import Scope
from tests.helpers.crashes import ends_within
from tests.helpers.types import Make
from tests.keeping.keeping import IDS, document, kept_by, past, say, values
from tests.keeping.scripted import Asked, Keeper, drop, held, notes_and, observes, operations_of, put

FACTS = {city: [put("/city", city)] for city in ("Rome", "Oslo", "Bern")} | {"baker": [put("/job", "baker")]}


def memory_of(make: Make, model: Any, *, keeper: Any = "observer", scope: Scope = "thread", **options: Any) -> Memory:
    observing = {"message_tokens": 20, "keep_tokens": 0, "background": False, **options.pop("observing", {})}
    options["more"] = {"observations": ObservationOptions(model=model, scope=scope, **observing)}
    return kept_by(make, keeper, **options)


def notes(memory: Memory, thread_id: str = "t") -> list[str]:
    found = memory.observations.get(thread_id=thread_id, resource_id="u")
    return [one.text for one in found.observations]


SAID = ("I live in Rome", "I am a baker", "I live in Oslo")
PRESENT = "And now?"  # a turn that stays as it is


def test_it_costs_no_call_more(make_memory: Make) -> None:
    """And the prompt of the notes is the same, with the document added."""
    asked: list[Keeper] = []
    for keeper, user in ((None, "plain"), ("observer", "kept")):
        model = observes(FACTS if keeper else {})
        memory = memory_of(make_memory, model, keeper=keeper, observing={"batch_tokens": 20})
        for text in (*SAID, PRESENT):
            say(memory, text, user, resource_id=user)
        memory.observations.observe(user, resource_id=user)
        asked.append(model)
    plain, kept = (model.asked for model in asked)
    assert len(plain) == len(kept) == 3
    assert document(memory, "kept", "kept") == {"city": "Oslo", "job": "baker"}
    for one, other in zip(plain, kept, strict=True):
        assert "document" not in one.data
        assert one.shown == other.shown
        more = "Write plain lines and nothing else.", "Write plain lines, and after them the changes of the document."
        assert other.rules.startswith(one.rules.replace(*more))


@pytest.mark.parametrize("log_scope", ["thread", "resource"])
@pytest.mark.parametrize("scope", ["thread", "resource"])
@pytest.mark.parametrize("background", [False, True])
def test_values_and_notes_come_from_one_answer(
    make_memory: Make, log_scope: Scope, scope: Scope, background: bool
) -> None:
    model = observes(FACTS)
    memory = kept_by(
        make_memory,
        "observer",
        scope=scope,
        more={
            "observations": ObservationOptions(
                model=model, scope=log_scope, message_tokens=5, keep_tokens=0, background=background
            )
        },
    )
    for thread in ("a", "b"):
        for text in (*SAID[:2], PRESENT):
            say(memory, text, thread)
    for thread in ("a", "b"):
        memory.observations.observe(thread, resource_id="u")
    assert document(memory, "a") == document(memory, "b") == {"city": "Rome", "job": "baker"}
    said = [text for one in model.asked for text in one.shown.values() if text != "I see." and text != PRESENT]
    assert sorted(said) == sorted([*SAID[:2], *SAID[:2]])
    assert {f"note on {text}" for text in SAID[:2]} <= {*notes(memory, "a")}


def test_an_observer_that_gives_only_notes_changes_nothing(make_memory: Make) -> None:
    memory = memory_of(make_memory, observes({}))
    say(memory, "I live in Rome")
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert (document(memory), memory.working_memory.get(resource_id="u").revision) == ({}, 0)
    assert notes(memory) == ["note on I live in Rome", "note on I see."]


@pytest.mark.parametrize(
    "operations",
    [
        '[{"op": "set", "path": "/city" "value": 1}]',
        '{"op": "fly"}',
        "[[[[",
        "Rome it is",
        '{"op": "set", "path": "/x", "value": 1, "messages": [1]}',
    ],
)
def test_wrong_operations_cost_no_note(make_memory: Make, operations: str) -> None:
    model = Keeper(answer=lambda _: f"2026-11-20\n- [1,2] a note\n# Operations\n{operations}")
    memory = memory_of(make_memory, model)
    say(memory, "I live in Rome")
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert (document(memory), notes(memory), len(model.asked)) == ({}, ["a note"], 1)


def test_operations_without_notes_are_asked_for_again(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.001)
    answers = [json.dumps([{**put("/city", "Rome"), "messages": [1]}])]
    model = Keeper(answer=lambda asked: answers.pop() if answers else observes(FACTS).answer(asked))
    memory = memory_of(make_memory, model)
    say(memory, "I live in Rome")
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert (document(memory), len(model.asked), len(notes(memory))) == ({"city": "Rome"}, 2, 2)


def test_an_emptying_answer_costs_no_note(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    paths = iter([("/city", "/job", "/diet"), ("/city", "/job"), ("/city", "/diet"), ("/job", "/diet")])

    def operations(asked: Asked) -> list[dict[str, Any]]:
        if not any("all" in text for text in asked.shown.values()):
            return operations_of(asked, FACTS)
        return [{**drop(path), "messages": [asked.number("all")]} for path in next(paths)]

    model = Keeper(answer=notes_and(operations))
    memory = memory_of(make_memory, model)
    memory.working_memory.update({"diet": "fish"}, resource_id="u")
    say(memory, "I am a baker in Rome")
    say(memory, PRESENT)
    memory.observations.observe("t")
    say(memory, "all of it was wrong")
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert document(memory) == {"city": "Rome", "job": "baker", "diet": "fish"}
    assert ("note on all of it was wrong" in notes(memory), len(model.asked)) == (True, 4)
    assert "would take away most" in caplog.text


def test_short_conversations_share_a_call_where_they_share_the_document(make_memory: Make) -> None:
    for scope, calls in (("resource", 1), ("thread", 3)):
        model = observes(FACTS)
        user = f"u{scope}"
        memory = kept_by(
            make_memory,
            "observer",
            scope=scope,
            more={
                "observations": ObservationOptions(
                    model=model, scope="resource", message_tokens=45, keep_tokens=0, batch_tokens=200
                )
            },
        )
        for number, text in enumerate((*SAID, PRESENT)):
            say(memory, text, f"{user}{number}", resource_id=user)
        assert (len(model.asked), document(memory, f"{user}2", user)["city"]) == (calls, "Oslo"), scope
        if scope == "resource":
            assert model.asked[0].data.count("<document>") == 1


def test_calls_side_by_side_keep_the_order_of_what_was_said(make_memory: Make) -> None:
    model = observes(FACTS)
    memory = memory_of(make_memory, model, observing={"batch_tokens": 30})
    ids = [say(memory, f"{number} I live in {('Rome', 'Oslo', 'Bern')[number % 3]}")[0] for number in range(12)]
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert document(memory) == {"city": "Bern"}
    assert [sources for _, sources in past(memory, "/city")] == [[one] for one in reversed(ids)]


def test_what_is_deleted_while_the_observer_thinks_is_not_kept(make_memory: Make) -> None:
    model = Keeper(answer=observes(FACTS).answer, **held())
    memory = memory_of(make_memory, model, observing={"background": True})
    turn = [HumanMessage("I live in Rome", id="q"), AIMessage("fine"), HumanMessage("I am a baker"), AIMessage("fine")]
    memory.save_turn([*turn, HumanMessage("so?"), AIMessage("x" * 200)], **IDS)
    assert model.entered.wait(5)
    memory_of(make_memory, model).history.delete(["q"], **IDS)
    model.released.set()
    memory.settled()
    assert document(memory) == {"job": "baker"}
    assert not [text for text in notes(memory) if "Rome" in text]


def test_a_run_that_is_killed_anywhere_is_made_up_for(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    after, is_over = 0, False
    while not is_over:
        after += 1
        thread = f"t{after}"
        model = observes(FACTS)
        memory: Any = memory_of(make_memory, model)
        for text in (*SAID, PRESENT):
            say(memory, text, thread, resource_id=thread)
        plan = observe(memory._core.state, thread, thread)
        is_over = ends_within(memory, plan, after)
        for key in raw.scan_iter(f"{prefix}:observations:t:*"):
            raw.hdel(key, "lease", "leased_until")  # as if its time were over
        memory.observations.observe(thread, resource_id=thread)
        assert document(memory, thread, thread) == {"city": "Oslo", "job": "baker"}
        assert len(values(memory, thread, thread).claims) == 3
        found = memory.observations.get(thread_id=thread, resource_id=thread)
        assert (len(found.observations), len(model.asked) <= 2) == (4, True), after
    assert after > 10


def test_the_hook_hides_what_the_observer_keeps(make_memory: Make) -> None:
    def hide(messages: list[Any], _: Any) -> list[Any]:
        return [one for one in messages if "Rome" not in one.content]

    memory = memory_of(make_memory, observes(FACTS), observing={"before_observing": hide})
    say(memory, "I live in Rome")
    say(memory, "I am a baker")
    say(memory, PRESENT)
    memory.observations.observe("t")
    assert document(memory) == {"job": "baker"}
