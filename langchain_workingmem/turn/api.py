"""The plans of one turn: behind `Memory.context` and `Memory.save_turn`, and for nodes and middleware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import HumanMessage

from langchain_workingmem._engine.effects import traced
from langchain_workingmem._redis.codec import as_messages
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError
from langchain_workingmem.history import Branch, save_messages
from langchain_workingmem.options import RecallArguments, one_of
from langchain_workingmem.recall import Query
from langchain_workingmem.turn.assembling import assemble, question
from langchain_workingmem.turn.operations import Gathered, gather, note_branch, note_saved_branch, noted_branch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import HistoryOptions, OnError


@dataclass(frozen=True, slots=True)
class Turn:
    """Plans of one turn."""

    core: Core
    history: HistoryOptions

    def context(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        thread_id: str,
        resource_id: str,
        *,
        recall: Literal[False] | None = None,
        last_messages: int | None = None,
        read_only: bool = False,
        **arguments: Unpack[RecallArguments],
    ) -> Plan[MemoryContext]:
        """Plan `Memory.context`."""
        one_of(recall, (False, None), "recall")
        new: list[BaseMessage] = [HumanMessage(messages)] if isinstance(messages, str) else as_messages(messages)
        gathering = self.gather(
            new, thread_id, resource_id, recall=recall, last_messages=last_messages, arguments=arguments
        )
        numbered = [message for message in new if message.id is None]
        for message in numbered:
            message.id = self.core.new_id()
        gathered = yield from gathering
        for message in numbered:
            message.id = gathered.branch.aliases.get(message.id or "", message.id)
        if not read_only:
            note_branch(self.core.state, thread_id, new, gathered.branch)
        return self.assemble(gathered, new, read_only=read_only)

    def gather(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        resource_id: str,
        on_error: OnError | None = None,
        *,
        kind: Kind = "list",
        recall: Literal[False] | Mapping[str, Any] | None = None,
        last_messages: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Plan[Gathered]:
        """Plan to read what the store holds for a turn, for callers that assemble later or more than once.

        `recall` is False, or arguments of recall, which may also be given as `arguments`. They are checked at once.
        """
        check_id(resource_id, "resource_id")
        state, options = self.core.state, self.core.state.recall
        given = (recall if isinstance(recall, Mapping) else arguments) or {}
        query = None
        if options is not None and recall is not False:
            asked = question(new)
            query = Query.of_turn(options, str(asked.text) if asked else "", thread_id, resource_id, given)
        elif names := sorted(name for name, value in given.items() if value not in (None, (), [], {}, set(), "")):
            state.recalling  # noqa: B018 - raises where recall is off
            raise OptionError(f"recall=False and {', '.join(names)}", remedy="leave one of them out")
        history = self.history
        if last_messages is not None:  # exactly that many, for this call
            history = replace(history, last_messages=last_messages, step=1)
        inputs = {"messages": list(new), "thread_id": thread_id, "resource_id": resource_id}
        on_error = on_error or self.core.on_error
        plan = gather(state, new, thread_id, resource_id, history, query, kind, on_error)
        return traced("chain", "memory_context", inputs, plan, Gathered.output)

    def assemble(
        self,
        gathered: Gathered,
        new: Sequence[BaseMessage],
        *,
        read_only: bool,
        for_model: bool = False,
        tools: Sequence[str] | None = None,
        name: str | None = None,
    ) -> MemoryContext:
        """Call `assemble` with the options of this memory."""
        return assemble(
            self.core.state,
            gathered,
            new,
            self.history,
            read_only=read_only,
            for_model=for_model,
            tools=tools,
            name=name,
        )

    def save(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str
    ) -> Plan[list[BaseMessage]]:
        """Plan `Memory.save_turn`; what `context` has found out about the same question is saved with it."""
        given = as_messages(messages)
        asked = question(given)
        noted = noted_branch(self.core.state, thread_id, asked)
        if asked is not None and asked.id is None and noted is not None:
            asked.id = noted.question or None
        branch = noted or Branch()
        stored = yield from save_messages(self.core, given, thread_id, resource_id, mode="turn", branch=branch)
        if noted is not None:
            note_saved_branch(self.core.state, thread_id, asked, noted)
        return stored
