"""`forget_messages`: a model deletes messages by the numbers with which `search_memory` has shown them in the same turn.

What was shown stands in the result of the search, in the state of the graph. So a run that goes on in another process knows the
numbers, and no other run does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangChain injects it by its annotation
from langchain_core.tools import ToolException
from langgraph.prebuilt import ToolRuntime  # noqa: TC002 - LangGraph injects it by its annotation
from pydantic import BaseModel, Field

from langchain_workingmem._text.copies import as_forgetting
from langchain_workingmem._text.rendering import conversations
from langchain_workingmem._text.unicode import is_utf8, visible
from langchain_workingmem.faces.for_models import Whole  # noqa: TC001 - Pydantic reads it
from langchain_workingmem.faces.nodes import kind_of
from langchain_workingmem.faces.tools.searching import SEARCH, Search, found_by
from langchain_workingmem.history import delete_messages
from langchain_workingmem.turn import turn_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.faces.tools.searching import Parts
    from langchain_workingmem.options import Ids

Run: TypeAlias = "Callable[..., Any]"

AWAY = "Memory is not available at the moment, so it is not certain that the messages are forgotten. Say so, and offer to try again."
MOST = 1000  # numbers of one search
_SHOWN = "memory_shown"  # key of what the artifact of a search holds
_NUMBERED = f"{SEARCH} Each message has a number, by which forget_messages deletes it; the search also finds what you still see."


class Forget(BaseModel):
    """Arguments of `forget_messages`."""

    numbers: list[Whole] = Field(
        min_length=1,
        description="The numbers of the messages, as search_memory has shown them while you answer this request.",
    )


@dataclass(frozen=True, slots=True)
class CallingTurn:
    """The turn that calls a tool, as the state of its graph holds it."""

    messages: Sequence[BaseMessage]
    tool: str
    call_id: str | None
    is_checkpointed: bool

    @classmethod
    def of(cls, runtime: Any, tool: str) -> CallingTurn:
        """Read the state; without a graph there is none."""
        state = getattr(runtime, "state", None)
        found: Any = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
        messages = [one for one in found if isinstance(one, BaseMessage)] if isinstance(found, list) else []
        is_checkpointed = runtime is not None and kind_of(runtime.config) in {"state", "substate"}
        return cls(turn_of(messages), tool, getattr(runtime, "tool_call_id", None), is_checkpointed)

    @property
    def ids(self) -> list[str]:
        """Return the ids of its messages."""
        return [one.id for one in self.messages if one.id and is_utf8(one.id)]

    def first_number(self) -> int:
        """Return the first number of this search: no other search of the turn uses it, also one at the same time."""
        calls = [call["id"] for one in self.messages if isinstance(one, AIMessage) for call in one.tool_calls]
        return 1 + MOST * (calls.index(self.call_id) if self.call_id in calls else len(calls))

    def shown(self) -> dict[int, tuple[str, str]]:
        """Return thread and id of the messages that searches of this turn have shown, by number."""
        search = self.tool.replace("forget_messages", "search_memory")
        results = (one for one in self.messages if isinstance(one, ToolMessage) and one.name == search)
        artifacts = (one.artifact for one in results if isinstance(one.artifact, dict))
        return {int(number): (thread, id) for one in artifacts for number, thread, id in one.get(_SHOWN, ())}

    def answer(self, text: str, **more: Any) -> ToolMessage:
        """Return the result of the tool."""
        return ToolMessage(visible(text), name=self.tool, tool_call_id=self.call_id, **more)


def with_turn(tool: str, run: Run, arun: Run) -> tuple[Run, Run]:
    """Let a tool know the turn that calls it."""
    nowhere: Any = None  # outside of a graph; LangChain does not see through an optional type

    def run_in_turn(config: RunnableConfig, runtime: ToolRuntime = nowhere, **arguments: Any) -> Any:
        return run(config, turn=CallingTurn.of(runtime, tool), **arguments)

    async def arun_in_turn(config: RunnableConfig, runtime: ToolRuntime = nowhere, **arguments: Any) -> Any:
        return await arun(config, turn=CallingTurn.of(runtime, tool), **arguments)

    return run_in_turn, arun_in_turn


def numbered_search(core: Core) -> Parts:
    """Return what makes `search_memory` beside `forget_messages`."""

    def make(ids: Ids, _: Any, turn: CallingTurn, **asked: Any) -> Plan[Any]:
        result, zone = yield from found_by(core.state, ids, **asked, own=frozenset(turn.ids))
        numbers = {
            (row.thread_id, row.message.id): turn.first_number() + at for at, row in enumerate(result.rows[:MOST])
        }
        attributes = {key: f' number="{number}"' for key, number in numbers.items()}
        text = visible("\n".join(conversations(result, zone=zone, attributes=attributes))) or "Nothing was found."
        if turn.call_id is None:
            return text
        return turn.answer(text, artifact={_SHOWN: [[number, *key] for key, number in numbers.items()]})

    return _NUMBERED, Search, make


def forgetting_tool(core: Core) -> Parts:
    """Return what makes `forget_messages`."""
    state = core.state

    def make(ids: Ids, _: Any, numbers: list[int], turn: CallingTurn) -> Plan[Any]:
        shown = turn.shown()
        if unknown := sorted({*numbers} - shown.keys()):
            msg = (
                f"Nothing was forgotten: search_memory has not shown {', '.join(map(str, unknown))} since the user's last message. "
                "Search now, and take the numbers from that result."
            )
            raise ToolException(msg)
        chosen: dict[str, list[str]] = {}
        for number in dict.fromkeys(numbers):
            thread, id = shown[number]
            chosen.setdefault(thread, []).append(id)
        count = 0
        for thread, some in chosen.items():
            count += yield from delete_messages(state, thread, ids.resource_id, some, forget=True)
        if ids.thread_id is not None:
            seen = state.shown_to_model.shown_messages(ids.thread_id)
            asked = [seen.question_id] if seen and seen.question_id and seen.owner == ids.resource_id else []
            own = [*dict.fromkeys([*turn.ids, *asked])]
            yield from delete_messages(state, ids.thread_id, ids.resource_id, own, forget=True)
        return as_forgetting(
            turn.answer(_answer(core, count and sum(map(len, chosen.values())), turn)),
            chosen.get(ids.thread_id or "", ()),
        )

    return (
        "Delete messages for good, because the user wants something to be forgotten. Search first, and pass the numbers of all "
        "messages that repeat it. The request itself is forgotten, too, when you have answered.",
        Forget,
        make,
    )


def _answer(core: Core, count: int, turn: CallingTurn) -> str:
    told = [
        f"{count} {'message is' if count == 1 else 'messages are'} deleted for good." if count else "All of it is gone."
    ]
    told.append("This turn is not kept either, with your answer. Do not repeat in it what was to be forgotten.")
    kept = core.state.working_memory
    if kept is not None:
        told.append(
            "What working memory had from these messages is gone, too."
            if kept.keeper
            else "Working memory is separate: if it repeats this, update it."
        )
    if turn.is_checkpointed:
        told.append(
            "Earlier checkpoints of the program still hold copies until the program deletes them; if the user asks, say so."
        )
    return " ".join(told)
