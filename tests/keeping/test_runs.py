"""How a keeper of its own works: when it is asked, one run at a time, and what failures, crashes and other writers leave."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import OptionError, ThreadOwnershipError, WorkingMemoryOptions
from langchain_workingmem.keeping.keeper import runs
from langchain_workingmem.observations import reflecting
from tests.helpers.crashes import ends_within
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, weather
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.keeping.keeping import IDS, Profile, document, kept_by, past, say, values
from tests.keeping.scripted import Asked, Keeper, held, knows, put, says

FACTS = {city: [put("/city", city)] for city in ("Rome", "Oslo", "Bern")} | {"baker": [put("/job", "baker")]}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(runs, "POLL", 0.01)


def test_a_turn_costs_no_round_trip_more(make_memory: Make, trips: Trips) -> None:
    memory = kept_by(make_memory, says(), background=False)
    say(memory, "I live in Rome")
    memory.working_memory.keep("t")
    say(memory, "warm")  # this thread tells what changes
    assert trips.of(lambda: memory.context([HumanMessage("where do I live?")], **IDS)) == 1
    turns = iter(range(2))
    assert trips.of(lambda: memory.save_turn([("user", f"turn {next(turns)}"), ("assistant", "so")], **IDS)) == 1


def test_without_a_keeper_no_model_is_asked_and_keep_says_what_is_missing(make_memory: Make) -> None:
    plain = make_memory(working_memory=WorkingMemoryOptions())
    say(plain, "I live in Rome")
    with pytest.raises(OptionError, match=r"has no keeper.*WorkingMemoryOptions\(keeper="):
        plain.working_memory.keep("t")


@pytest.mark.both_faces
def test_a_worker_keeps_what_no_background_does(make_memory: Make) -> None:
    keeper = knows(FACTS)
    memory = kept_by(make_memory, keeper, background=False)
    memory.save_turn([("user", "I live in Rome"), ("assistant", "fine")], **IDS)
    memory.settled()
    assert (keeper.asked, document(memory)) == ([], {})
    report = memory.working_memory.keep("t", user_id="u")
    assert (report.memory.value, report.calls, report.operations, report.failures) == (Profile(city="Rome"), 1, 1, 0)
    assert report.input_tokens > 0 < report.output_tokens
    assert memory.working_memory.keep("t") == report
    assert len(keeper.asked) == 1


def test_it_reads_when_enough_waits_in_all_conversations_of_a_user(make_memory: Make) -> None:
    keeper = knows(FACTS)
    memory = kept_by(make_memory, keeper, keep_after=45)
    say(memory, "I live in Rome", "a")  # 13 tokens a turn
    say(memory, "I live in Oslo", "b")
    say(memory, "I am a baker", "a")
    assert keeper.asked == []
    say(memory, "and now", "c")
    assert [list(one.shown.values())[::2] for one in keeper.asked] == [
        ["I live in Rome", "I am a baker"],
        ["I live in Oslo"],
        ["and now"],
    ]
    assert document(memory) == {"city": "Oslo", "job": "baker"}
    say(memory, "and then", "c")
    assert len(keeper.asked) == 3


def test_a_question_without_an_answer_waits_for_it(make_memory: Make) -> None:
    keeper = knows(FACTS)
    memory = kept_by(make_memory, keeper)
    memory.save_turn([HumanMessage("I live in Rome", id="q")], **IDS)
    memory.settled()
    assert keeper.asked == []
    memory.save_turn([HumanMessage("I live in Rome", id="q"), AIMessage("fine")], **IDS)
    memory.settled()
    assert [one.shown for one in keeper.asked] == [{1: "I live in Rome", 2: "fine"}]


def test_of_a_long_turn_finished_steps_are_read_with_their_question(make_memory: Make) -> None:
    keeper = knows(FACTS | {"it is Bern": [put("/city", "Bern")]})
    memory = kept_by(make_memory, keeper)
    turn: list[Any] = [HumanMessage("where do I live? Rome?")]
    for step in range(3):
        turn.append(AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": str(step)}]))
        turn.append(ToolMessage(f"step {step} " + "it is Bern" * (step == 2) + "x" * 30_000, tool_call_id=str(step)))
        memory.history.append(turn[-2 - (not step) :], **IDS)
        memory.settled()
    assert [sorted(one.roles.values()) for one in keeper.asked] == [
        ["assistant", "tool", "user"],
        ["assistant", "tool"],
    ]
    memory.history.append([AIMessage("In Bern.")], **IDS)
    memory.settled()
    assert "where do I live? Rome?</earlier>" in keeper.asked[1].data
    assert document(memory) == {"city": "Bern"}


def failing(*errors: Any) -> Keeper:
    """Return a keeper that fails some times."""
    waiting = list(errors)
    return Keeper(answer=lambda asked: waiting.pop(0) if waiting else knows(FACTS).answer(asked))


def test_an_answer_that_cannot_be_read_is_asked_for_again_with_the_objection(make_memory: Make) -> None:
    keeper = failing("I have noted it.", AIMessage("[", response_metadata={"finish_reason": "length"}))
    memory = kept_by(make_memory, keeper)
    say(memory, "I live in Rome")
    assert document(memory) == {"city": "Rome"}
    assert "holds no operation that can be read" in str(keeper.asked[1].conversation[-1].text)
    assert "was cut off" in str(keeper.asked[2].conversation[-1].text)
    report = memory.working_memory.keep("t")
    assert (report.calls, report.failures, report.last_error) == (
        3,
        2,
        "The answer was cut off before its end. Write fewer and shorter lines, about 300 words in all.",
    )


def test_a_model_that_fails_is_not_asked_again_before_a_pause_is_over(
    make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = failing(*[ConnectionError("it is down: Rome")] * 3)
    memory = kept_by(make_memory, keeper)
    say(memory, "I live in Rome")
    assert (len(keeper.asked), document(memory)) == (3, {})
    assert "is not asked again for 60 s" in caplog.text
    assert "Rome" not in caplog.text
    say(memory, "I am a baker")
    assert len(keeper.asked) == 3
    other = kept_by(make_memory, keeper)  # as another process
    say(other, "so")
    assert len(keeper.asked) == 3
    report = other.working_memory.keep("t")  # whoever asks for it does not wait
    assert (document(memory), report.failures, report.calls) == ({"city": "Rome", "job": "baker"}, 3, 4)
    say(memory, "I live in Oslo")
    assert document(memory) == {"city": "Oslo", "job": "baker"}


def poisoned(asked: Asked) -> Any:
    if any("poison" in text for text in asked.shown.values()):
        return AIMessage("", response_metadata={"finish_reason": "content_filter"})
    return knows(FACTS).answer(asked)


def test_what_no_model_can_read_is_passed_over(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(answer=poisoned)
    memory = kept_by(make_memory, keeper, background=False)
    for text in ("I live in Rome", "poison", "I am a baker"):
        say(memory, text)
    report = memory.working_memory.keep("t")
    assert (document(memory), report.calls) == ({"city": "Rome", "job": "baker"}, 3 + 6)
    assert "cannot read it" in caplog.text
    memory.working_memory.keep("t")
    assert len(keeper.asked) == report.calls


def test_a_model_that_answers_nothing_loses_no_message(make_memory: Make) -> None:
    keeper = Keeper(answer=lambda _: "no")
    memory = kept_by(make_memory, keeper, background=False)
    for number in range(6):
        say(memory, f"{number} Rome")
    memory.working_memory.keep("t")
    assert len(keeper.asked) <= 3 + runs.OUTAGE
    good = kept_by(make_memory, knows(FACTS), background=False)
    assert good.working_memory.keep("t").memory.value == Profile(city="Rome")


def test_a_run_at_a_time_keeps_a_document(make_memory: Make) -> None:
    keeper = Keeper(answer=knows(FACTS).answer, **held())
    memory, other = kept_by(make_memory, keeper), kept_by(make_memory, keeper)
    memory.save_turn([("user", "I live in Rome"), ("assistant", "fine")], **IDS)
    assert keeper.entered.wait(5)
    other.save_turn([("user", "I live in Oslo"), ("assistant", "fine")], thread_id="b", user_id="u")
    other.settled()  # it leaves the work to the first one
    assert len(keeper.asked) == 1
    keeper.released.set()
    memory.settled()
    assert (len(keeper.asked), document(other)) == (2, {"city": "Oslo"})


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_run_that_is_killed_anywhere_is_made_up_for(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: str
) -> None:
    after, is_over = 0, False
    while not is_over:
        after += 1
        user = f"u{after}"
        keeper = knows(FACTS)
        memory: Any = kept_by(make_memory, keeper, background=False, scope=scope)
        for text in ("I live in Rome", "I live in Oslo, I am a baker"):
            say(memory, text, user, user_id=user)
        plan = runs.keep(memory._core.state, user, user)
        is_over = ends_within(memory, plan, after)
        for key in raw.scan_iter(f"{prefix}:values:*"):
            raw.hdel(key, "lease", "leased_until")  # as if its time were over
        memory.working_memory.keep(user, user_id=user)
        assert document(memory, user, user) == {"city": "Oslo", "job": "baker"}
        found = values(memory, user, user)
        assert (len(found.claims), found.state.revision) == (3, 1), after
        assert len(keeper.asked) <= 2
    assert after > 10


def test_what_is_deleted_while_the_model_thinks_is_not_kept(make_memory: Make) -> None:
    keeper = Keeper(answer=knows(FACTS).answer, **held())
    memory = kept_by(make_memory, keeper)
    turn = [HumanMessage("I live in Rome", id="q"), AIMessage("fine"), HumanMessage("I am a baker"), AIMessage("fine")]
    memory.save_turn(turn, **IDS)
    assert keeper.entered.wait(5)
    kept_by(make_memory, keeper, background=False).history.delete(["q"], **IDS)
    keeper.released.set()
    memory.settled()
    assert document(memory) == {"job": "baker"}


def test_what_is_edited_is_read_again(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    keeper = knows(FACTS | {"Ulm": [put("/city", "Ulm")]})
    memory = kept_by(make_memory, keeper)
    first, _ = say(memory, "I live in Ulm")
    say(memory, "I am a baker")
    memory.history.update([HumanMessage("I live in Bern", id=first)], **IDS)
    memory.settled()
    assert document(memory) == {"job": "baker", "city": "Bern"}
    assert past(memory, "/city") == [("Bern", [first])]
    assert keeper.asked[-1].shown == {1: "I live in Bern"}
    assert not [
        key for key in raw.scan_iter(f"{prefix}*") if raw.type(key) == b"hash" and "Ulm" in str(raw.hgetall(key))
    ]
    asked = len(keeper.asked)
    memory.working_memory.keep("t")
    assert len(keeper.asked) == asked


def test_what_a_tool_of_memory_returns_is_no_source(make_memory: Make) -> None:
    def answer(asked: Asked) -> str:
        return json.dumps([{**put("/city", "Rome"), "messages": [3]}, {**put("/job", "baker"), "messages": [5]}])

    memory = kept_by(make_memory, Keeper(answer=answer))
    calls = [
        AIMessage("", tool_calls=[{"name": "search_memory", "args": {}, "id": "1"}]),
        ToolMessage("you live in Rome", tool_call_id="1"),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "2"}]),
        ToolMessage("the user is a baker", tool_call_id="2"),
    ]
    memory.save_turn([HumanMessage("who am I?"), *calls, AIMessage("A baker.")], **IDS)
    memory.settled()
    assert document(memory) == {"job": "baker"}


def test_closing_ends_a_run_after_its_call(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    keeper = Keeper(answer=knows(FACTS).answer, **held())
    memory = kept_by(make_memory, keeper)
    memory.save_turn([("user", "I live in Rome"), ("assistant", "fine")], **IDS)
    assert keeper.entered.wait(5)
    memory.save_turn([("user", "I live in Oslo"), ("assistant", "fine")], thread_id="b", user_id="u")
    closing = threading.Thread(target=memory.close)
    closing.start()
    time.sleep(0.02)
    keeper.released.set()
    closing.join()
    other = kept_by(make_memory, keeper)
    assert document(other) == {"city": "Rome"}
    other.working_memory.keep("b", user_id="u")  # without waiting for a lease
    assert document(other) == {"city": "Oslo"}


@pytest.mark.both_faces
def test_an_agent_has_no_tool_traffic_of_memory(bench: Bench) -> None:
    keeper = knows(FACTS)
    model = Scripted.says("Rome is nice.", calling(("weather", {"city": "Rome"}), id="w"), "Sunny.")
    memory = bench.memory(working_memory=WorkingMemoryOptions(schema=Profile, keeper=keeper))
    agent = agent_of(model, memory, tools=[weather])
    bench.run(agent, ask("I live in Rome"))
    bench.runner.run(memory.asettled())
    answer = bench.run(agent, ask("And the weather?"))
    bench.runner.run(memory.asettled())
    assert model.tools == [["weather"]] * 3
    assert [one.type for one in answer["messages"]] == ["human", "ai", "tool", "ai"]
    asked = str(model.seen[1][-1].text)
    assert '{"city": "Rome"}' in asked
    assert "update" not in asked.lower()
    assert memory.working_memory.get(user_id="ann").value == Profile(city="Rome")
    assert [len(one.shown) for one in keeper.asked] == [2, 4]


def test_a_foreign_thread_is_not_kept(make_memory: Make) -> None:
    keeper = knows(FACTS)
    for scope in ("user", "thread"):
        memory = kept_by(make_memory, keeper, background=False, scope=scope)
        say(memory, "I live in Rome")
        with pytest.raises(ThreadOwnershipError):
            memory.working_memory.keep("t", user_id="v")
    assert keeper.asked == []


def test_a_user_who_is_deleted_while_the_model_thinks_leaves_nothing(
    make_memory: Make, raw: redis.Redis, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(answer=knows(FACTS).answer, **held())
    memory = kept_by(make_memory, keeper)
    memory.save_turn([("user", "I live in Rome"), ("assistant", "fine")], **IDS)
    assert keeper.entered.wait(5)
    kept_by(make_memory, keeper, background=False).users.delete("u")
    keeper.released.set()
    memory.settled()
    assert not [key for key in raw.scan_iter(f"{prefix}:*") if b"{u}" in key and b"tombstone" not in key]
    assert "Rome" not in caplog.text
