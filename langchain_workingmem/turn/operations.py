"""One turn: what a model is shown before it answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_workingmem._engine.effects import compute, traced
from langchain_workingmem._redis.access import owner_tag, refusal, run_script
from langchain_workingmem._redis.codec import decode_message, is_ours_to_keep
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.copies import with_memory, without_memory
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem._text.said import words_of
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.history import (
    Branch,
    Comparison,
    compared,
    entries,
    entry_arguments,
    fit,
    history_slice,
    provider_valid,
)
from langchain_workingmem.models import MemoryContext, RecallResult
from langchain_workingmem.recall import fetch_hits, find_candidates
from langchain_workingmem.working_memory import find_scope_key, read_commands, read_state, working_memory_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import StoredMessage, WorkingMemoryState
    from langchain_workingmem.options import HistoryOptions
    from langchain_workingmem.recall import Query, Ranked

TURN = Script("turn/turn", "header", "history/branch")


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: what the turn answers, and what recall looks for."""
    return next((message for message in reversed(messages) if _is_users(message)), None)


def turn_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages of the present turn: from what the user said last on. Without a user's message, all."""
    return list(messages[_start_of_turn(messages, len(messages)) :])


def _start_of_turn(messages: Sequence[BaseMessage], end: int) -> int:
    """Return the index of the first message of the turn that ends in front of the index `end`."""
    start = next((at for at in range(end - 1, -1, -1) if _is_users(messages[at])), 0)
    while start and _is_users(messages[start - 1]):
        start -= 1
    return start


def _is_users(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and is_ours_to_keep(message)


def is_summarised(messages: Sequence[BaseMessage]) -> bool:
    """Tell whether a summary stands for a part of these messages."""
    return any(message.additional_kwargs.get("lc_source") == "summarization" for message in messages)


def unsaved(messages: Sequence[BaseMessage], stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what a turn has to save: itself, and what stands in front of it since the last message that is `stored`.

    Where none is, what stands in front may be examples of the program. Then only the turns that were left at an interrupt
    are saved as well: they end with calls that nobody has answered, and nothing of them may have been saved.
    """
    start = _start_of_turn(messages, len(messages))
    known = next((at for at in range(start - 1, -1, -1) if messages[at].id in stored), None)
    if known is not None:
        return list(messages[known + 1 :])
    while start and isinstance(last := messages[start - 1], AIMessage) and last.tool_calls:
        start = _start_of_turn(messages, start)
    return list(messages[start:])


def to_save(messages: Sequence[BaseMessage], branch: Branch, stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what is unsaved, questions that were edited in front of it too; not what the thread holds under another id."""
    elsewhere = {*branch.aliases, *branch.hidden}
    fresh = unsaved(messages, stored)
    ids = {message.id for message in fresh}
    edited = (message for message in messages if message.id in branch.edited and message.id not in ids)
    return [message for message in (*edited, *fresh) if message.id not in elsewhere]


def note_branch(state: MemoryState, thread_id: str, messages: Sequence[BaseMessage], branch: Branch) -> None:
    """Keep what a caller's list leaves behind until its turn is saved.

    It is found by the id of the question, and by its words for who saves other objects; two lists with the same words at
    once are not told apart by them, so neither is found.
    """
    if asked := question(messages):
        words = (thread_id, words_of(asked))
        state.branches.change(words, lambda other: branch if other is None or other == branch else Branch())
        state.branches.put((thread_id, asked.id or ""), branch)


def noted_branch(state: MemoryState, thread_id: str, asked: BaseMessage | None) -> Branch | None:
    """Return what was noted for the question of a turn that is saved now."""
    if asked is None:
        return None
    key = words_of(asked) if asked.id is None else asked.id
    return state.branches.get((thread_id, key))


def note_saved_branch(state: MemoryState, thread_id: str, asked: BaseMessage | None, branch: Branch) -> None:
    """Remember that a branch is written down, in case that the same is saved again."""
    if asked is not None:
        state.branches.pop((thread_id, words_of(asked)))
        state.branches.put((thread_id, asked.id or ""), branch.without_changes())


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the store knows for a turn."""

    thread_id: str
    stored: list[StoredMessage] = field(default_factory=list)  # what the history shows beside the caller's list
    recalled: RecallResult = field(default_factory=RecallResult)
    seqs: Mapping[str, int] = field(default_factory=dict)  # of what was read and of the caller's list, by id
    uptos: Mapping[str, int] = field(default_factory=dict)  # tokens said up to them
    cut: int = 0  # messages that a limit of tokens left in the store
    branch: Branch = field(default_factory=Branch)
    working_memory: WorkingMemoryState | None = None

    def output(self) -> dict[str, Any]:
        """Give what callbacks and LangSmith are shown of it."""
        return {
            "history": [row.message for row in self.stored],
            "recalled": self.recalled.messages,
            "working_memory": self.working_memory.text if self.working_memory else None,
        }

    def renamed(self, ids: Collection[str]) -> Gathered:
        """Know messages of the caller's list under the ids under which they are stored as well."""
        names = {id: name for id, name in self.branch.aliases.items() if id in ids}
        if not names:
            return self
        seqs = {name: self.seqs[id] for id, name in names.items()}
        uptos = {name: self.uptos[id] for id, name in names.items() if id in self.uptos}
        return replace(self, seqs={**self.seqs, **seqs}, uptos={**self.uptos, **uptos})


def gather(
    state: MemoryState,
    new: Sequence[BaseMessage],
    thread_id: str,
    resource_id: str,
    history: HistoryOptions,
    query: Query | None,
    kind: Kind = "list",
) -> Plan[Gathered]:
    """Read history and working memory and search in one round trip, fetch the windows of the hits in another.

    `new` is the caller's list, of which each message has an id.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    listed = entries(new)
    scope_key = None
    if state.working_memory is not None:
        scope_key = yield from find_scope_key(state, thread_id, resource_id)
    arguments = [owner_tag(resource_id), kind, *_limits(history), int(is_summarised(new)), *entry_arguments(listed)]
    calls = [
        TURN.call(keys.all, *arguments),
        *(read_commands(scope_key) if scope_key else ()),
    ]

    def read(replies: list[Any]) -> tuple[Gathered, Comparison]:
        reply, *rest = replies
        seen = compared(reply, listed, kind)
        rows = _rows(reply, thread_id)
        given = {message.id for message in new} - seen.branch.hidden
        stored = _chosen([row for row in rows if row.message.id not in given], new, history)
        current = read_state(state, scope_key, rest) if scope_key else None
        gathered = Gathered(
            thread_id,
            stored,
            seqs={**{row.message.id or "": row.seq for row in rows}, **seen.seqs},
            uptos={**{row.message.id or "": row.upto for row in rows}, **seen.uptos},
            cut=seen.cut,
            branch=seen.branch,
            working_memory=current,
        )
        return gathered, seen

    if query is None or not query.text.strip():
        replies = yield from run_script(thread_id, resource_id, *calls)
        return (yield from compute(partial(read, replies), _size(replies[0])))[0]
    limit = history.last_messages
    if limit is None and history.max_tokens is None:  # all of this thread is shown anyway
        query = query.without([thread_id])
    spare = min((limit or 0) + (history.step or limit or 0) + len(listed), MOST_SPARE)
    looking = _recall(state, query, thread_id, resource_id, calls, read, spare=spare)
    return (
        yield from traced(
            "retriever", "semantic_recall", query.text, looking, lambda gathered: gathered.recalled.to_documents()
        )
    )


MOST_SPARE = 1000  # candidates of recall that may be in sight anyway


def _limits(history: HistoryOptions) -> list[Argument]:
    """Write what the history shows as `turn.lua` reads it."""
    last = history.last_messages
    most = history.max_tokens if history.token_counter == "approximate" else None
    return [
        "" if last is None else last,
        history.step or last or 1,
        int(history.exclude_tools is True),
        f",{','.join(history.roles)}," if history.roles else "",
        "" if most is None else most,
    ]


def _size(reply: list[Any]) -> int:
    """Count the bytes of the messages at the end of the reply of `turn.lua`."""
    return sum(map(len, reply[11][2::3]))


def _rows(reply: list[Any], thread_id: str) -> list[StoredMessage]:
    """Read the messages at the end of the reply of `turn.lua`."""
    columns = (reply[11][start::3] for start in range(3))
    return [decode_message(id, seq, value, thread_id) for id, seq, value in zip(*columns, strict=True)]


def read_history(
    state: MemoryState, thread_id: str, resource_id: str | None, history: HistoryOptions
) -> Plan[list[BaseMessage]]:
    """Read what the history shows of a thread. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = TURN.call(keys.all, owner_tag(resource_id), "part", *_limits(history), 0)
    (reply,) = yield from run_script(thread_id, resource_id, call)
    rows = _rows(reply, thread_id)
    past = history_slice([row.message for row in rows], history)
    kept, _ = fit(past, (), {row.message.id or "": row.upto for row in rows}, history, int(reply[1]))
    return kept


def _recall(
    state: MemoryState,
    query: Query,
    thread_id: str,
    resource_id: str,
    calls: Sequence[Command],
    read: Callable[[list[Any]], tuple[Gathered, Comparison]],
    *,
    spare: int,
) -> Plan[Gathered]:
    """Search in the round trip that reads the history, and leave out what the history shows and what is given anyway.

    Where in the thread the given messages stand is known by then: to let every candidate bring its id instead takes
    Search a quarter longer.
    """
    try:
        ranked, replies = yield from find_candidates(state, query, calls, spare=spare)
    except RedisReplyError as error:
        raise refusal(error, thread_id, resource_id) from None
    gathered, seen = yield from compute(partial(read, replies), _size(replies[0]))
    here = encode(thread_id).encode()
    in_sight = {*gathered.seqs.values(), *seen.left_seqs}

    def is_fresh(one: Ranked) -> bool:
        return one.thread != here or (one.seq not in in_sight and one.seq < seen.ends)

    recalled = yield from fetch_hits(state, query, ranked, is_fresh, spare=spare)
    # the messages around a hit may be in sight, or left behind
    kept = [
        row for row in recalled.rows if row.thread_id != thread_id or (row.seq not in in_sight and row.seq < seen.ends)
    ]
    return replace(gathered, recalled=replace(recalled, rows=kept))


def _chosen(rows: Sequence[StoredMessage], new: Sequence[BaseMessage], options: HistoryOptions) -> list[StoredMessage]:
    """Leave out what the options say of stored messages; tokens are counted when all is put together."""
    if not (options.exclude_tools or options.roles):
        return list(rows)
    by_id = {row.message.id: row for row in rows}
    kept = history_slice([row.message for row in rows], options, new)
    return [replace(by_id[message.id], message=message) for message in kept]


def assemble(
    state: MemoryState,
    gathered: Gathered,
    new: Sequence[BaseMessage],
    history: HistoryOptions,
    *,
    read_only: bool,
    for_model: bool = False,
    tools: Sequence[str] | None = None,
    name: str | None = None,
) -> MemoryContext:
    """Put a context together, and note what a model has in sight now.

    `tools` are the names of the tools that the model has, None: those of the options. `name` is that of the memory, where an
    agent has several. Order: system messages of `new`, the history, the rest of `new`. A stored message that is also in `new`
    stands where `new` has it. What is sent to a model as it is begins with the user, because Bedrock refuses to begin with an
    answer, and Gemini with a call. Memory stands in front of the user's words, in a copy, so that the prompt keeps its prefix.
    """
    current, recalled = gathered.working_memory, gathered.recalled
    rest = [m for m in new if not isinstance(m, SystemMessage) and m.id not in gathered.branch.hidden]
    prompts = [message for message in new if isinstance(message, SystemMessage)]
    given = {message.id for message in rest if message.id}
    past = [row.message for row in gathered.stored if row.message.id not in given]
    present = turn_of(rest)
    merged = _in_order(past, gathered.seqs, rest, len(rest) - len(present))
    kept, omitted = fit(merged, present, gathered.uptos, history, gathered.cut)
    own = {id(message) for message in rest}

    def is_earlier_answer(group: Sequence[BaseMessage]) -> bool:
        return for_model and not any(
            isinstance(one, HumanMessage) or one.id in given or id(one) in own for one in group
        )

    shown = provider_valid([*kept, *present], is_earlier_answer)
    asked = next((message for message in reversed(shown) if _is_users(message)), None)
    words = str(without_memory(asked).text) if asked else ""
    stored = gathered.branch.aliases  # of what a client sends under ids of its own
    state.note_shown_messages(gathered.thread_id, [stored.get(one.id, one.id) for one in shown if one.id], words)
    blocks: dict[str, list[str]] = {"question": [], "system": []}
    if state.recall is not None and (block := recalled_block(recalled, gathered.thread_id, name)):
        blocks[state.recall.placement].append(block)
    if current is not None:
        block = working_memory_block(state, current, read_only=read_only, tools=tools, name=name)
        blocks[state.remembering.placement].append(block)
        state.note_shown_document(gathered.thread_id, current.key, current.text)
    if blocks["question"]:
        at = next((at for at in range(len(shown) - 1, -1, -1) if _is_users(shown[at])), None)
        if at is None:
            blocks["system"] = [*blocks["question"], *blocks["system"]]
        else:
            shown[at] = with_memory(shown[at], blocks["question"])
    return MemoryContext(
        messages=[*prompts, *shown],
        system=blocks["system"],
        recalled=recalled,
        working_memory=current,
        omitted=omitted,
    )


def _in_order(
    past: list[BaseMessage], seqs: Mapping[str, int], rest: Sequence[BaseMessage], turn_starts: int
) -> list[BaseMessage]:
    """Put stored messages in front of the given one that follows them in the thread, else in front of the turn.

    A checkpointed state holds its own turns; what another writer added to the thread between them belongs between them.
    """
    if not any(message.id in seqs for message in rest[:turn_starts]):  # a list that the thread does not know came later
        return [*past, *rest[:turn_starts]]
    merged: list[BaseMessage] = []
    waiting = deque(past)
    for message in rest[:turn_starts]:
        seq = seqs.get(message.id or "")
        while waiting and seq is not None and seqs[waiting[0].id or ""] < seq:
            merged.append(waiting.popleft())
        merged.append(message)
    return [*merged, *waiting]
