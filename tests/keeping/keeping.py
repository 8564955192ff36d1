"""What tests of a keeper share: a profile, memories with a keeper, and what is known of a value."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.keeping.store import Kept, read_kept
from langchain_workingmem.working_memory import find_scope_key
from tests.helpers.types import Make

IDS: Any = {"thread_id": "t", "user_id": "u"}


class Pet(BaseModel):
    name: str = Field(json_schema_extra={"key": True})
    kind: str | None = None


class Profile(BaseModel):
    city: str | None = None
    job: str | None = None
    diet: str | None = None
    allergies: list[str] = []
    pets: list[Pet] = []


def kept_by(make: Make, keeper: Any, *, more: dict[str, Any] | None = None, **options: Any) -> Memory:
    """Make a memory that a keeper keeps."""
    options.setdefault("schema", Profile)
    return make(working_memory=WorkingMemoryOptions(keeper=keeper, **options), **(more or {}))


def say(memory: Memory, text: str, thread_id: str = "t", answer: str = "I see.", user_id: str = "u") -> list[str]:
    """Save a turn, wait for the keeper, and return the ids of the messages."""
    turn = [HumanMessage(text), AIMessage(answer)]
    saved = memory.save_turn(turn, thread_id=thread_id, user_id=user_id)
    memory.settled()
    return [one.id or "" for one in saved]


def values(memory: Memory, thread_id: str = "t", user_id: str = "u") -> Kept:
    """Read the values of a working memory."""
    core: Any = memory._core  # not of a face
    where = core.run(find_scope_key(core.state, thread_id, user_id))
    found: Kept = core.run(read_kept(core.state, where))
    return found


def document(memory: Memory, thread_id: str = "t", user_id: str = "u") -> dict[str, Any]:
    """Return the document as plain values, without what is empty."""
    found = memory.working_memory.get(thread_id=thread_id, user_id=user_id).value
    return {} if found is None else found.model_dump(exclude_defaults=True)


def past(memory: Memory, path: str) -> list[tuple[Any, list[str]]]:
    """Return what held at a path, the newest first, each with the messages that said so."""
    return [(one.value, [source.message_id for source in one.sources]) for one in values(memory).values.history(path)]
