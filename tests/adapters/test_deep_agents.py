"""Whole deep agents whose files lie in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory
from langchain_workingmem.adapters.deepagents import FilesBackend
from tests.helpers.models import Bench, Scripted, ask, calling, configured


def deep(stored: Memory, model: Scripted, **options: Any) -> Any:
    """Make a deep agent that keeps all its files in memory."""
    return create_deep_agent(model, **{"backend": FilesBackend(stored), "checkpointer": InMemorySaver(), **options})


def texts(memory: Memory, owner: str) -> dict[str, str]:
    return {one.path: memory.files.read(one.path, user_id=owner).text for one in memory.files.glob("**", user_id=owner)}


def writing(path: str, text: str) -> Scripted:
    return Scripted.says(calling(("write_file", {"file_path": path, "content": text}), id="w"), "Written.")


@pytest.mark.both_faces
def test_notes_and_skills_of_each_user_lie_below_a_route(bench: Bench) -> None:
    memory = bench.memory()
    skill = "---\nname: poems\ndescription: How {} wants poems\n---\nRhyme."
    for user in ("ann", "bob"):
        memory.files.write("/AGENTS.md", f"You work for {user}.", user_id=user)
        memory.files.write("/skills/poems/SKILL.md", skill.format(user), user_id=user)
    files = CompositeBackend(default=StateBackend(), routes={"/memories/": FilesBackend(memory)})
    said = "Always answers in verse."
    learn = ("edit_file", {"file_path": "/memories/AGENTS.md", "old_string": ".", "new_string": f".\n{said}"})
    draft = ("write_file", {"file_path": "/draft.md", "content": "a draft"})
    model = Scripted.says(calling(learn, draft, id="a"), "Learned.", "Hello.", "Hello.")
    agent = deep(memory, model, backend=files, memory=["/memories/AGENTS.md"], skills=["/memories/skills/"])
    end = bench.run(agent, ask("Verse, please"), configured("1", "ann"))
    assert list(end["files"]) == ["/draft.md"]
    bench.run(agent, ask("Hello"), configured("2", "ann"))
    bench.run(agent, ask("Hello"), configured("3", "bob"))
    first, _, later, other = (str(seen[0].text) for seen in model.seen)
    assert "You work for ann." in first
    assert "How ann wants poems" in first
    assert said not in first
    assert said in later
    assert "You work for bob." in other
    assert "How bob wants poems" in other
    assert "work for ann" not in other
    assert texts(memory, "ann")["/AGENTS.md"] == f"You work for ann.\n{said}"
    assert "/draft.md" not in texts(memory, "ann")


def edits_its_line(messages: list[BaseMessage]) -> AIMessage | str:
    """Play a subagent that is given a number, and edits the line of this number."""
    if isinstance(messages[-1], ToolMessage):
        return f"{messages[-1].text}"
    number = re.findall(r"\d+", str(messages[-1].text))[-1]
    edit = {"file_path": "/plan.md", "old_string": f"step {number} open\n", "new_string": f"step {number} done\n"}
    return calling(("edit_file", edit), id=f"e{number}")


@pytest.mark.both_faces
def test_ten_subagents_that_edit_one_file_make_ten_edits(bench: Bench) -> None:
    memory = bench.memory()
    memory.files.write("/plan.md", "".join(f"step {n} open\n" for n in range(10)), user_id="ann")
    tasks = [("task", {"description": f"Do step {n}", "subagent_type": "worker"}) for n in range(10)]
    words = {"name": "worker", "description": "does a step", "system_prompt": "Do it."}
    worker = {**words, "model": Scripted.says(*[edits_its_line] * 20)}
    agent = deep(memory, Scripted.says(calling(*tasks, id="t"), "All done."), subagents=[worker])
    bench.run(agent, ask("Do all steps"), configured("1", "ann"))
    assert texts(memory, "ann") == {"/plan.md": "".join(f"step {n} done\n" for n in range(10))}
    assert memory.files.read("/plan.md", user_id="ann").revision == 11


@dataclass
class Caller:
    user_id: str


@pytest.mark.parametrize(
    ("given", "owner"),
    [({"context": Caller("ann")}, "ann"), ({}, "alone"), ({"config": configured("alone", "bob")}, "bob")],
    ids=["context", "thread alone", "config"],
)
@pytest.mark.in_turn("face")
def test_the_owner_is_the_user_of_the_run(bench: Bench, given: dict[str, Any], owner: str) -> None:
    memory = bench.memory()
    agent = deep(memory, writing("/a.md", "mine"), context_schema=Caller)
    bench.run(agent, ask("Write"), **{"config": configured("alone"), **given})
    assert texts(memory, owner) == {"/a.md": "mine"}


@pytest.mark.in_turn("face")
def test_a_team_shares_one_tree(bench: Bench) -> None:
    memory = bench.memory()
    team = FilesBackend(memory, user_id="team", by="planner")
    bench.run(deep(memory, writing("/a.md", "from ann"), backend=team), ask("Write"), configured("1", "ann"))
    read = calling(("read_file", {"file_path": "/a.md"}), id="r")
    end = bench.run(deep(memory, Scripted.says(read, "Read."), backend=team), ask("Read"), configured("2", "bob"))
    assert "from ann" in end["messages"][-2].text
    assert [one.by for one in memory.files.history("/a.md", user_id="team")] == ["planner"]
