"""The plans of one turn, for `Memory.context`, `Memory.save_turn`, nodes and middleware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_workingmem._engine.tracing import traced
from langchain_workingmem._redis.codec import as_messages
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.copies import covered_in, with_memory, with_words, without_memory
from langchain_workingmem._text.nesting import shown
from langchain_workingmem._text.ranges import removed_positions
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem._text.said import is_blank, words_of
from langchain_workingmem.checks import check_now, one_of
from langchain_workingmem.errors import OptionError
from langchain_workingmem.history import (
    Branch,
    fit,
    history_slice,
    is_sliced,
    media_begin,
    provider_valid,
    save_messages,
    with_names,
)
from langchain_workingmem.models import MemoryContext
from langchain_workingmem.recall import Query, check_argument_names
from langchain_workingmem.turn.made import note_made
from langchain_workingmem.turn.messages import (
    in_order,
    is_users,
    note_branch,
    note_saved_branch,
    noted_branch,
    question,
)
from langchain_workingmem.turn.operations import Gathered, Moment, divided, gather
from langchain_workingmem.usage import Counting
from langchain_workingmem.working_memory import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Unpack

    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import Kind
    from langchain_workingmem.options import HistoryOptions, RecallArguments


BLANK = "(empty message)"  # shown for a question without content, which providers refuse


@dataclass(frozen=True, slots=True)
class Turn:
    """Plans of one turn."""

    core: Core
    history: HistoryOptions

    def context(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        thread_id: str,
        user_id: str,
        *,
        recall: Literal[False] | None = None,
        last_messages: int | None = None,
        read_only: bool = False,
        **arguments: Unpack[RecallArguments],
    ) -> Plan[MemoryContext]:
        """Plan `Memory.context`."""
        if isinstance(recall, dict):  # as in config["configurable"]["memory"]
            raise OptionError(
                f"recall={shown(recall)}", remedy=f"pass {', '.join(recall) or 'them'} as arguments of their own"
            )
        one_of(recall, (False, None), "recall")
        new, removed = _given([HumanMessage(messages)] if isinstance(messages, str) else messages)
        plan = self.gather(
            new,
            thread_id,
            user_id,
            recall=recall,
            last_messages=last_messages,
            arguments=arguments,
            removed=removed,
        )
        numbered = [message for message in new if message.id is None]
        for message in numbered:
            message.id = self.core.new_id()
        gathered = yield from plan
        for message in numbered:
            message.id = gathered.branch.aliases.get(message.id or "", message.id)
        if not read_only:
            note_branch(self.core.state, thread_id, new, gathered.branch)
        return self.assemble(gathered, new, read_only=read_only)

    def gather(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        user_id: str,
        *,
        kind: Kind = "list",
        recall: Literal[False] | None = None,
        arguments: Mapping[str, Any] = MappingProxyType({}),
        last_messages: int | None = None,
        removed: str = "",
        timezone: str | None = None,
    ) -> Plan[Gathered]:
        """Plan to read what the store holds for a turn; `arguments` are those of recall, which `recall=False` turns off.

        `timezone` is the one that this call names.
        """
        check_id(user_id, "user_id")
        state, options = self.core.state, self.core.state.recall
        zone = state.zone(thread_id, user_id, timezone)
        if (now := arguments.get("now")) is not None:
            check_now(now)
        query = None
        if options is not None and recall is not False:
            asked = question(new)
            text = "" if asked is None else str(asked.text)
            query = Query.of_turn(options, text, thread_id, user_id, arguments, state.thread_filters).in_zone(zone)
        else:
            check_argument_names(arguments)
            given = {name for name, value in arguments.items() if value not in (None, (), [], {}, set(), "")}
            if names := sorted(given - {"now"}):
                state.recalling  # noqa: B018 - raises where recall is off
                raise OptionError(f"recall=False and {', '.join(names)}", remedy="leave one of them out")
        history = self.history
        if last_messages is not None:  # exactly that many, for this call
            history = replace(history, last_messages=last_messages, step=1)
        inputs = {"messages": list(new), "thread_id": thread_id, "user_id": user_id}
        plan = gather(
            state, new, thread_id, user_id, history, query, kind, self.core.on_error, removed, Moment(now, zone)
        )
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
        in_prompt: Callable[[Sequence[str]], BaseMessage | None] | None = None,
    ) -> MemoryContext:
        """Put a context together, and note what the model is shown.

        `tools` are the names of the model's tools, None: those of the options. `name` is the memory's, where an agent has several.
        `in_prompt` is that of `Counting`.
        Order: system messages of `new`, the history, the rest of `new`; what both have stands where `new` has it. With `for_model`
        a history begins with the user, because Bedrock refuses an answer at the beginning, and Gemini a call. Memory goes into a
        copy of the user's message, so that the prompt keeps its prefix.
        """
        new = [with_words(one, BLANK) if is_blank(one) else one for one in new]
        state, current, recalled = self.core.state, gathered.working_memory, gathered.recalled
        zone = gathered.moment.zone
        prompts = [message for message in new if isinstance(message, SystemMessage)]
        past, earlier, present = divided(gathered, new)
        given = {message.id for message in (*earlier, *present) if message.id}
        own = {id(message) for message in (*earlier, *present)}
        recent = [message for message in earlier if not gathered.is_too_old(message)]
        omitted = len(earlier) - len(recent)
        merged = self._without_tools(in_order(past, gathered.seqs, recent), present, gathered.uptos)
        if self.history.media != "all":
            merged = with_names(merged, media_begin([*merged, *present], self.history.media))
        kept, more = fit(merged, present, gathered.uptos, self.history, gathered.cut, is_cut=gathered.is_cut)

        def is_earlier_answer(group: Sequence[BaseMessage]) -> bool:
            return for_model and not any(
                isinstance(one, HumanMessage) or one.id in given or id(one) in own for one in group
            )

        shown = provider_valid([*kept, *present], is_earlier_answer)
        asked = next((at for at in range(len(shown) - 1, -1, -1) if is_users(shown[at])), None)
        words = "" if asked is None else str(without_memory(shown[asked]).text)
        aliases = gathered.branch.aliases
        ids = [aliases.get(one.id, one.id) for one in shown if one.id]
        question_id = None if asked is None else shown[asked].id
        question_id = aliases.get(question_id or "", question_id)
        state.shown_to_model.note_shown_messages(gathered.thread_id, ids, words, gathered.user_id, question_id)
        blocks: dict[str, list[str]] = {"question": [], "system": []}
        if state.recall is not None and (block := recalled_block(recalled, gathered.thread_id, name, zone)):
            blocks[state.recall.placement].append(block)
        if current is not None:
            block = working_memory_block(state, current, read_only=read_only, tools=tools, name=name)
            blocks[state.remembering.placement].append(block)
            state.shown_to_model.note_shown_document(gathered.thread_id, current.key, current.text)
        if asked is None:
            blocks["system"] = [*blocks["question"], *blocks["system"]]
        elif blocks["question"]:
            shown[asked] = with_memory(shown[asked], blocks["question"])
        messages, system = [*prompts, *shown], blocks["system"]
        context = MemoryContext(
            messages=messages,
            system=system,
            recalled=recalled,
            working_memory=current,
            omitted=omitted + more,
        )
        note_made(context, Counting(self.history.token_counter, present, in_prompt))
        return context

    def _without_tools(
        self, earlier: list[BaseMessage], present: Sequence[BaseMessage], uptos: Mapping[str, int]
    ) -> list[BaseMessage]:
        """Leave out the tool calls of earlier turns as `exclude_tools` says; roles choose among stored messages only."""
        options = replace(self.history, roles=None) if self.history.roles else self.history
        return history_slice(earlier, options, present, uptos) if is_sliced(earlier, options) else earlier

    def save(
        self, messages: Iterable[MessageLikeRepresentation], thread_id: str, user_id: str
    ) -> Plan[list[BaseMessage]]:
        """Plan `Memory.save_turn`; what `context` has found out about the same question is saved with it."""
        given, removed = _given(messages)
        asked = question(given)
        noted = noted_branch(self.core.state, thread_id, asked)
        if asked is not None and asked.id is None and noted is not None:
            asked.id = noted.question or None
        branch = noted
        if branch is None or branch.saved is not None:  # a question may have been edited since it was saved
            unseen = [one.id for one in given if isinstance(one, HumanMessage) and one.id]
            seen = branch.seen if branch and asked and branch.saved == words_of(asked) else None
            branch = replace(branch or Branch(), unseen=unseen, seen=seen)
        if branch.removed != removed:
            branch = replace(branch, removed=removed)
        stored = yield from save_messages(self.core, given, thread_id, user_id, mode="turn", branch=branch)
        if noted is not None:
            note_saved_branch(self.core.state, thread_id, asked, noted)
        return stored


def _given(messages: Iterable[MessageLikeRepresentation]) -> tuple[list[BaseMessage], str]:
    """Return the caller's messages, and the positions of those that an earlier context has left out between them."""
    given: Any = list(messages) if isinstance(messages, Iterator) else messages  # it is read twice
    taken = as_messages(given)
    marked = [given] if isinstance(given, BaseMessage) else given
    covered = covered_in(one for one in marked if isinstance(one, BaseMessage) and one.additional_kwargs)
    return taken, removed_positions(covered) if covered else ""
