"""One turn of a conversation: the plans behind `Memory.context` and `Memory.save_turn`, which nodes and middleware run as well."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import HumanMessage

from langchain_workingmem._engine.effects import traced
from langchain_workingmem._redis.codec import as_messages
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import EmbeddingError, EmbeddingSizeError, OptionError
from langchain_workingmem.history import Branch, save_messages
from langchain_workingmem.options import RecallArguments, one_of
from langchain_workingmem.recall import Query
from langchain_workingmem.turn.operations import (
    Gathered,
    assemble,
    gather,
    note_branch,
    note_saved_branch,
    noted_branch,
    question,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import HistoryOptions, OnError

_log = logging.getLogger("langchain_workingmem")


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
        """Plan what `Memory.context` does."""
        new: list[BaseMessage] = [HumanMessage(messages)] if isinstance(messages, str) else as_messages(messages)
        query = self._query(new, thread_id, resource_id, recall, arguments)

        def plan() -> Plan[MemoryContext]:
            numbered = [message for message in new if message.id is None]
            for message in numbered:
                message.id = self.core.new_id()
            found = yield from self._gather(new, thread_id, resource_id, query, last_messages)
            found = found.renamed({message.id or "" for message in numbered})
            for message in numbered:
                message.id = found.branch.aliases.get(message.id or "", message.id)
            if not read_only:
                note_branch(self.core.state, thread_id, new, found.branch)
            return self.assemble(found, new, read_only=read_only)

        return plan()

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
    ) -> Plan[Gathered]:
        """Plan to read what the store holds for a turn, for callers that assemble later or more than once."""
        arguments = recall if isinstance(recall, Mapping) else {}
        query = self._query(new, thread_id, resource_id, None if arguments else recall, arguments)
        return self._gather(new, thread_id, resource_id, query, last_messages, on_error, kind)

    def assemble(
        self,
        found: Gathered,
        new: Sequence[BaseMessage],
        *,
        read_only: bool,
        for_model: bool = False,
        tools: Sequence[str] | None = None,
        name: str | None = None,
    ) -> MemoryContext:
        """Put together what `gather` found and the messages at hand; `tools` are the names of those that the model has."""
        return assemble(
            self.core.state, found, new, self.history, read_only=read_only, for_model=for_model, tools=tools, name=name
        )

    def save(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, resource_id: str
    ) -> Plan[list[BaseMessage]]:
        """Plan to save a turn, and to supersede what the list that `context` was asked with has left behind."""
        check_id(resource_id, "resource_id")
        state = self.core.state
        given = as_messages(messages)
        asked = question(given)
        noted = noted_branch(state, thread_id, asked)
        branch = noted or Branch()
        if asked is not None and asked.id is None and branch.question:
            asked.id = branch.question
        stored = yield from save_messages(self.core, given, thread_id, resource_id, mode="turn", branch=branch)
        if noted is not None:
            note_saved_branch(state, thread_id, asked, noted)
        return stored

    def _query(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        resource_id: str,
        recall: Literal[False] | Mapping[str, Any] | None,
        arguments: Mapping[str, Any],
    ) -> Query | None:
        """Check the arguments of recall; None where nothing is recalled."""
        check_id(resource_id, "resource_id")
        one_of(recall, (False, None), "recall")
        options = self.core.state.recall
        if options is None or recall is not None:
            nothing: tuple[object, ...] = (None, (), [], {}, set(), "")  # filters without content ask for nothing
            if asked := sorted(name for name, value in arguments.items() if value not in nothing):
                self.core.state.recalling  # noqa: B018 - raises where recall is off
                raise OptionError(
                    f"recall=False and {', '.join(asked)}",
                    remedy="leave one of them out",
                )
            return None
        asked_with = question(new)
        text = str(asked_with.text) if asked_with else ""
        return Query.of_turn(options, text, thread_id, resource_id, arguments)

    def _gather(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        resource_id: str,
        query: Query | None,
        last_messages: int | None,
        on_error: OnError | None = None,
        kind: Kind = "list",
    ) -> Plan[Gathered]:
        seen = {"messages": list(new), "thread_id": thread_id, "resource_id": resource_id}
        history = self.history
        if last_messages is not None:  # of this call, and exactly that many
            history = replace(history, last_messages=last_messages, step=1)
        plan = partial(gather, self.core.state, new, thread_id, resource_id, history, kind=kind)

        def finding() -> Plan[Gathered]:
            try:
                return (yield from plan(query=query))
            except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
                if (on_error or self.core.on_error) == "raise":
                    raise
                _log.warning("%s; this turn goes without recall", error)
            return (yield from plan(query=None))

        return traced("chain", "memory_context", seen, finding(), Gathered.output)
