"""A chat that anybody may begin: a guest talks, logs in, and goes on as a user who talked before, in the same thread and in others."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_workingmem import Memory, ObservationOptions, ThreadOwnershipError, WorkingMemoryOptions
from langchain_workingmem.options import Scope
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured
from tests.keeping.scripted import knows, observes, put
from tests.users.guests import GUEST, THIRD, USER, naming

TEMPLATE = "# Known\n- Name:\n- City:\n"
FACTS = {
    "I live in Lisbon": [put("/city", "Lisbon")],
    "my name is Maya": [put("/name", "Maya")],
    "I live in Rome": [put("/city", "Rome")],
}


class Known(BaseModel):
    name: str | None = None
    city: str | None = None


def noting(label: str, value: str) -> Any:
    edit = {"find": f"- {label}:", "replace": f"- {label}: {value}"}
    return calling(("update_working_memory", {"edits": [edit]}), id=label)


def variant(how: str, scope: Scope) -> tuple[dict[str, Any], list[list[Any]]]:
    """Return the options of a memory, and what the model says in the turns of the user, the third one and the guest."""
    observing = ObservationOptions(model=observes({}), scope=scope, message_tokens=10, keep_tokens=0, background=False)
    if how == "a tool":
        options: dict[str, Any] = {"template": TEMPLATE}
        lines: list[list[Any]] = [[noting("Name", "Maya"), "Hi"], [noting("City", "Rome"), "Hi"]]
        lines += [[noting("City", "Lisbon"), "Nice"]]
    else:
        options = {"schema": Known, "keeper": knows(FACTS), "background": False}
        lines = [["Hi"], ["Hi"], ["Nice"]]
    return {"working_memory": WorkingMemoryOptions(**options), "observations": observing}, lines


def settle(memory: Memory, thread: str, owner: str, how: str) -> None:
    if how == "a keeper":
        memory.working_memory.keep(thread, user_id=owner)
    memory.observations.observe(thread, user_id=owner)


def shown(model: Scripted) -> str:
    return "\n".join(str(one.text) for one in model.seen[-1])


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("scope", ["thread", "user"])
@pytest.mark.parametrize("how", ["a tool", "a keeper"])
def test_a_guest_logs_in_and_is_known(bench: Bench, raw: redis.Redis, prefix: str, how: str, scope: Scope) -> None:
    options, lines = variant(how, scope)
    memory = bench.recalling(**options)
    model = Scripted.says()
    agent = agent_of(model, memory, checkpointer=InMemorySaver())
    turns = [
        ("my name is Maya", "first", USER),
        ("I live in Rome", "other", THIRD),
        ("I live in Lisbon", "guest", GUEST),
    ]
    for (words, thread, owner), script in zip(turns, lines, strict=True):
        model.script += [*script, "Bye"]
        for text in (words, "thank you"):  # the present turn is not observed
            bench.run(agent, ask(text), configured(thread, owner))
        settle(memory, thread, owner, how)

    report = memory.users.merge(GUEST, into=USER)
    assert (report.threads, report.working_memories) == (1, 1)

    model.script += ["You live in Lisbon, Maya", "In Lisbon", "In Rome"]
    bench.run(agent, ask("what do you know of me?"), configured("guest", USER))  # the same conversation goes on
    known = shown(model)
    assert "Maya" in known
    assert "Lisbon" in known
    bench.run(agent, ask("where do I live?"), configured("new", USER))
    known = shown(model)
    assert "Maya" in known
    assert "Lisbon" in known
    if scope == "user":
        lines_of_both = [one.text for one in memory.observations.get(user_id=USER)]
        assert lines_of_both.index("note on my name is Maya") < lines_of_both.index("note on I live in Lisbon")
    bench.run(agent, ask("and where do I live?"), configured("other", THIRD))
    assert "Lisbon" not in shown(model)
    assert "Maya" not in shown(model)
    with pytest.raises(ThreadOwnershipError):
        bench.run(agent, ask("what do you know of me?"), configured("guest", GUEST))
    if how != "a tool":
        state = memory.working_memory.get(user_id=USER)
        ((thread, message),) = state.sources("/city")
        memory.history.delete([message], thread_id=thread)
        found = memory.working_memory.get(user_id=USER).value
        assert (thread, found) == ("guest", Known(name="Maya"))
    assert naming(raw, prefix, GUEST) == []
    assert memory.working_memory.get(user_id=THIRD).text.count("Rome") == 1
    assert [row.text for row in memory.history.messages("guest") if isinstance(row, HumanMessage)][-1] == (
        "what do you know of me?"
    )
