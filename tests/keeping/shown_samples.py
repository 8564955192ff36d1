"""A user who moves and changes jobs, and a keeper that is played by the test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict
from pydantic import BaseModel, Field

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.codec import to_micros
from langchain_workingmem.importers import header
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.store import change_kept, mark_command
from langchain_workingmem.working_memory import find_scope_key

ANN: Any = {"user_id": "ann"}
KEEPER = FakeListChatModel(responses=["[]"])


class Pet(BaseModel):
    name: str = Field(json_schema_extra={"key": True})
    age: int | None = None


class Home(BaseModel):
    street: str | None = None
    floor: int | None = None


class Person(BaseModel):
    city: str | None = None
    job: str | None = None
    home: Home | None = None
    allergies: list[str] = []
    pets: list[Pet] = []


def options(**given: Any) -> WorkingMemoryOptions:
    given = {"schema": Person, "keeper": KEEPER, **given}
    return WorkingMemoryOptions(**{"background": given["keeper"] is None, **given})


def day(number: float) -> datetime:
    """Return a time in March 2026."""
    return datetime.fromtimestamp(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() + (number - 1) * 86_400, UTC)


def say(memory: Memory, *said: tuple[float, str], thread: str = "t") -> None:
    """Store what the user says, each on its day as message m<day>, and an answer to each."""
    records: list[dict[str, Any]] = [header("ann"), {"kind": "thread", "id": thread}]
    for number, text in said:
        for at, message in enumerate((HumanMessage(text, id=f"m{number}"), AIMessage("I see.", id=f"a{number}"))):
            time = day(number + at / 1440).isoformat()
            record = {"kind": "message", "thread_id": thread, "message": message_to_dict(message), "stored_at": time}
            records.append(record)
    memory.users.load(records)


def keep(
    memory: Memory,
    path: str,
    value: Any,
    *numbers: float,
    thread: str = "t",
    at: float | None = None,
    origin: str = "keeper",
    ids: Any = ANN,
) -> None:
    """Keep what messages of these days say about a value, None removes it; without numbers it has no sources, and was said `at`."""
    state = memory._core.state
    scope_key = memory._core.run(find_scope_key(state, ids.get("thread_id"), ids.get("user_id")))
    if numbers:
        memory._core.run(send(mark_command(state, thread, "ann", state.remembering.scope)))
    seqs = {row.message.id: row.seq for row in memory.history.page(thread, limit=500)} if numbers else {}
    sources = tuple(Source(thread, f"m{one}", seqs[f"m{one}"], to_micros(day(one))) for one in numbers)
    said = day(at if at is not None else max(numbers))
    claim = Claim(
        path=path,
        value=value,
        is_set=value is not None,
        said_at=to_micros(said),
        recorded_at=to_micros(said) + 1,
        origin=origin,
        sources=sources,
        is_line=state.remembering.schema is None,
    )
    memory._core.run(change_kept(state, scope_key, lambda _: ([claim], None), origin))
