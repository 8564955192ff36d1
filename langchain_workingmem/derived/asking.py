"""What models in the background read of a thread, and how they are asked: for observers and keepers alike."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from html import escape
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_workingmem._counting import Taken, count_taken, tokens_of_call
from langchain_workingmem._engine.calls import ask
from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._text.clock import to_minute, zone_name
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem._text.said import is_memory_tool, tool_call_ids
from langchain_workingmem._text.unicode import CHARACTERS_PER_TOKEN, keep_ends, length, visible
from langchain_workingmem.derived.rows import Ranges, Rows, Work, known_rows, read_work, state_command
from langchain_workingmem.errors import ModelError
from langchain_workingmem.history import made
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

T = TypeVar("T")

ATTEMPTS = 3  # questions to a model, each with what was wrong with the answer before
_LONGEST_GROUP = 64  # results that may follow what is chosen
_LEAST = 80  # characters of a message that stay where many are cut
_MOST_QUOTED = 2000  # characters of a question that is shown as reference
_MOST_ANSWERED = 20_000  # characters of a bad answer that the model is shown
_LEFT_OUT = "[the answer of memory is left out]"
_AGAIN = "Write the whole answer again, in the required form."


class BadAnswer(Exception):  # noqa: N818 - it is caught and told to the model, never shown to a user
    """An answer that cannot be used; the text tells the model why."""


class ChangedError(Exception):
    """Messages of the thread were deleted or edited while a model was asked: it must not be shown them again."""


# ---------------------------------------------------------------------- reading


@dataclass(slots=True)
class Unread:
    """The messages of a thread that rows of a kind do not cover."""

    shown: Rows
    work: Work
    facts: list[Facts]  # of the current messages that shown rows do not cover, rising
    replies: list[Any] = field(default_factory=list)  # to the commands beside

    def waiting(self) -> list[Facts]:
        """Return what no row covers at all, also none that waits to be activated; no message that a provider has refused."""
        return [one for one in self.facts if one.seq not in self.work.ahead and not one.is_refused]


def read_unread(state: MemoryState, thread_id: str, user_id: str | None, kind: str, *beside: Command) -> Plan[Unread]:
    """Read which messages the rows of a kind do not cover. One round trip, two where others have covered some since."""
    order = state.keys.of(thread_id).order
    while True:
        covered = known_rows(state, thread_id, kind).covered
        gaps: list[Command] = [("ZRANGE", order, low, high, "BYSCORE") for low, high in _gaps(covered)]
        shown, work, replies = yield from read_work(state, thread_id, user_id, kind, *gaps, *beside)
        if shown.covered == covered:
            texts = [text for some in replies[: len(gaps)] for text in some]
            found = yield from compute(partial(_uncovered, texts, covered), sum(map(len, texts)))
            return Unread(shown, work, found, replies[len(gaps) :])


def _uncovered(texts: Sequence[bytes], covered: Ranges) -> list[Facts]:
    facts = (Facts.read(text.decode()) for text in texts)
    return [one for one in facts if one.seq not in covered]


def _gaps(covered: Ranges) -> list[tuple[str, str]]:
    if len(covered) > 100:  # it is cheaper to read all
        return [("-inf", "+inf")]
    edges = [-1, *(edge for pair in covered for edge in pair)]
    return [
        (f"({low}", f"({high}") for low, high in zip(edges[::2], [*edges[1::2], "+inf"], strict=True) if low != high
    ]


def read_messages(
    state: MemoryState, thread_id: str, facts: Sequence[Facts], work: Work
) -> Plan[list[StoredMessage] | None]:
    """Read messages; None if some were edited or deleted since `work` was read. One round trip, one more with media."""
    messages = state.keys.of(thread_id).messages
    bodies, found = yield from send(("HMGET", messages, *(one.seq for one in facts)), state_command(state, thread_id))
    if not work.is_of(found):
        return None
    rows = [
        StoredMessage.of(body, thread_id, one.seq, one.upto if one.words else 0)
        for one, body in zip(facts, bodies, strict=True)
        if body
    ]
    return (yield from made(state, rows))


class Group(NamedTuple):
    """Messages that stay together: a call with its results, or one message."""

    rows: list[StoredMessage]
    is_finished: bool = True


def groups_of(rows: Iterable[StoredMessage]) -> list[Group]:
    """Cut messages into groups."""
    found, waiting = list[list[StoredMessage]](), dict[str, int]()
    open_calls = dict[int, set[str]]()
    for row in rows:
        message = row.message
        at = waiting.pop(message.tool_call_id, None) if isinstance(message, ToolMessage) else None
        if at is not None:
            found[at].append(row)
            open_calls[at].discard(message.tool_call_id)  # type: ignore[attr-defined]
            continue
        if isinstance(message, AIMessage) and (calls := tool_call_ids(message)):
            open_calls[len(found)] = {*calls}
            waiting.update(dict.fromkeys(calls, len(found)))
        found.append([row])
    return [Group(rows, not open_calls.get(at)) for at, rows in enumerate(found)]


def read_batch(
    state: MemoryState,
    thread_id: str,
    facts: Sequence[Facts],
    work: Work,
    *,
    tokens: int,
    most: int,
    open_after: float = inf,
) -> Plan[list[Group] | None]:
    """Read the oldest whole groups of at most so many `tokens` and about `most` messages, one group at least.

    None if the thread has changed. A call behind the seq `open_after` that has no result yet ends the batch: it may still get one.
    """
    chosen, size = list[Facts](), 0
    for one in facts:  # results that follow belong to what is chosen
        if chosen and (size > tokens or len(chosen) >= most) and (one.words or len(chosen) >= most + _LONGEST_GROUP):
            break
        chosen.append(one)
        size += one.tokens
    rows = yield from read_messages(state, thread_id, chosen, work)
    if rows is None:
        return None
    weights, size, found = {one.seq: one.tokens for one in chosen}, 0, list[Group]()
    for group in groups_of(rows):
        weight = sum(weights[row.place] for row in group.rows)
        is_open = not group.is_finished and group.rows[-1].place > open_after
        if is_open or (found and size + weight > tokens):
            break
        found.append(group)
        size += weight
    return found


# ---------------------------------------------------------------------- showing


def elements(
    rows: Sequence[StoredMessage],
    most_tokens: int,
    question: StoredMessage | None = None,
    *,
    zone: ZoneInfo | None = None,
) -> str:
    """Write messages as elements, numbered from 1; `question` is the request that they work on, if it is not among them.

    If the texts have more than `most_tokens` together, the longest are cut to the same length: their beginning and their end stay.
    """
    tools = tools_called(rows)
    texts = [_text(row.message, tools) for row in rows]
    most = _most_characters([length(text) for text in texts], most_tokens * CHARACTERS_PER_TOKEN)
    shown = []
    if question is not None:
        shown.append(f"<question>{escaped(keep_ends(_text(question.message, {}), _MOST_QUOTED))}</question>")
    clock = zone_name(zone)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True), 1):
        head = f'<message n="{number}" role="{role_of(row.message)}" time="{to_minute(row.stored_at, zone)} {clock}">'
        shown.append(f"{head}{escaped(keep_ends(text, most))}</message>")
    return "\n".join(shown)


def tools_called(rows: Sequence[StoredMessage]) -> dict[str | None, str]:
    """Return the name of each tool that messages call, by the id of the call."""
    return {call["id"]: call["name"] for row in rows for call in getattr(row.message, "tool_calls", ())}


def role_of(message: BaseMessage) -> str:
    """Return whose words a message holds: user, assistant or tool."""
    if isinstance(message, ToolMessage | FunctionMessage):
        return "tool"
    is_users = isinstance(message, HumanMessage) or (
        isinstance(message, ChatMessage) and message.role in {"user", "human"}
    )
    return "user" if is_users else "assistant"


def _text(message: BaseMessage, tools: dict[str | None, str]) -> str:
    name, text = message.name, message_text(message)
    if isinstance(message, ToolMessage):
        name = name or tools.get(message.tool_call_id)
        if is_memory_tool(name):  # it repeats what is stored already
            text = _LEFT_OUT
        elif message.status == "error":
            name = f"{name or 'tool'} (failed)"
    return f"{name}: {text}" if name else text


def _most_characters(lengths: list[int], most: int) -> int:
    """Return the length to which texts are cut so that all have `most` characters: short ones leave theirs to the others."""
    left = most
    for at, size in enumerate(sorted(lengths)):
        share = left // (len(lengths) - at)
        if size > share:
            return max(share, _LEAST)
        left -= size
    return max(most, _LEAST)


def escaped(text: str) -> str:
    """Return a text that cannot end the element of a prompt in which it stands."""
    return escape(visible(text), quote=False)


# ---------------------------------------------------------------------- asking


@dataclass(frozen=True, slots=True)
class Asking:
    """How a model is asked for a thread."""

    state: MemoryState
    thread_id: str
    user_id: str
    model: BaseChatModel
    seconds: float
    name: str  # of the run, for callbacks
    go_on: Callable[[], Plan[None]]  # called before each further question; it may raise

    def __call__(
        self,
        rules: str,
        data: str,
        read: Callable[[BaseMessage, Any], T],
        schema: type[Any] | None = None,
        *,
        cost: int = 0,
    ) -> Plan[T]:
        """Ask until an answer can be read, three times at most. Raises `ModelError`, or the last `BadAnswer`.

        `read` gets the answer, and what it holds of the `schema` where the model can answer along one. What the calls take is
        counted. `cost` says how long reading takes, in characters beside those of the answer.
        """
        messages: list[BaseMessage] = [SystemMessage(rules), HumanMessage(data)]
        asked: Any = self.model if schema is None else with_schema(self.model, schema)
        run = {"run_name": self.name, "metadata": {"thread_id": self.thread_id}}
        taken, failure = Taken(0, 0, 0), Exception()
        for attempt in range(ATTEMPTS):
            if attempt:
                yield from self.go_on()
            try:
                answer: Any = yield from ask(asked, messages, self.seconds, run)
            except ModelError:
                yield from self._count(Taken(taken.calls + 1, taken.input_tokens, taken.output_tokens))
                raise
            is_parsed = isinstance(answer, dict)
            raw, parsed = (answer["raw"], answer["parsed"]) if is_parsed else (answer, None)
            more = tokens_of_call(messages, raw)
            taken = Taken(taken.calls + 1, taken.input_tokens + more[0], taken.output_tokens + more[1])
            try:
                found = yield from compute(partial(read, raw, parsed), cost + len(str(raw.content)))
            except BadAnswer as error:
                failure, text = error, keep_ends(visible(str(raw.text)).strip(), _MOST_ANSWERED) or "(no text)"
                messages = [*messages[:2], AIMessage(text), HumanMessage(f"{escaped(str(error))} {_AGAIN}")]
            else:
                yield from self._count(taken)
                return found
        yield from self._count(taken)
        raise failure

    def _count(self, taken: Taken) -> Plan[None]:
        return count_taken(self.state, self.thread_id, self.user_id, taken)


# Where providers say why an answer ended, and parts of the words for an end before its time.
_ENDS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "incomplete_details", "status")
_CUT = re.compile(r"length|max_?(?:output_?)?token|token_limit|context_window|incomplete")
_FILTERED = re.compile(r"filter|safety|refus|recitation|block|prohibited|guardrail|spii|toxic|sensitive")


def check_end(answer: BaseMessage) -> None:
    """Raise `BadAnswer` if a provider says that an answer ended before its time."""
    for name in _ENDS:
        value = answer.response_metadata.get(name)
        reason = str(value.get("reason") if isinstance(value, dict) else value).lower()
        if _CUT.search(reason):
            raise BadAnswer("The answer was cut off before its end. Write less.")
        if _FILTERED.search(reason):
            raise BadAnswer(
                "The answer was stopped by a filter of the provider. Use neutral words of your own, without quotes."
            )


def with_schema(model: BaseChatModel, schema: type[Any]) -> Any:
    """Return a model that answers along a schema if it can, else the model itself."""
    try:
        return model.with_structured_output(schema, include_raw=True)
    except Exception:  # noqa: BLE001 - whatever a model says that cannot: then its text is read
        return model
