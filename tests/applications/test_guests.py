"""A chat that anybody may begin: a guest talks, logs in, and goes on as a user who talked before, in the same thread and in others."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import ThreadOwnershipError, WorkingMemoryOptions
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured
from tests.users.guests import GUEST, THIRD, USER, naming

TEMPLATE = "# Known\n- Name:\n- City:\n"


def noting(label: str, value: str) -> Any:
    edit = {"find": f"- {label}:", "replace": f"- {label}: {value}"}
    return calling(("update_working_memory", {"edits": [edit]}), id=label)


def shown(model: Scripted) -> str:
    return "\n".join(str(one.text) for one in model.seen[-1])


@pytest.mark.in_turn("face")
def test_a_guest_logs_in_and_is_known(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    lines = [[noting("Name", "Maya"), "Hi"], [noting("City", "Rome"), "Hi"], [noting("City", "Lisbon"), "Nice"]]
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=TEMPLATE))
    model = Scripted.says()
    agent = agent_of(model, memory, checkpointer=InMemorySaver())
    turns = [
        ("my name is Maya", "first", USER),
        ("I live in Rome", "other", THIRD),
        ("I live in Lisbon", "guest", GUEST),
    ]
    for (words, thread, owner), script in zip(turns, lines, strict=True):
        model.script += [*script, "Bye"]
        for text in (words, "thank you"):
            bench.run(agent, ask(text), configured(thread, owner))

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
    bench.run(agent, ask("and where do I live?"), configured("other", THIRD))
    assert "Lisbon" not in shown(model)
    assert "Maya" not in shown(model)
    with pytest.raises(ThreadOwnershipError):
        bench.run(agent, ask("what do you know of me?"), configured("guest", GUEST))
    assert naming(raw, prefix, GUEST) == []
    assert memory.working_memory.get(user_id=THIRD).text.count("Rome") == 1
    assert [row.text for row in memory.history.messages("guest") if isinstance(row, HumanMessage)][-1] == (
        "what do you know of me?"
    )
