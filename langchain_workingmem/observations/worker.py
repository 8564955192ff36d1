"""A worker that lets a model read a thread and makes rows of its answers: one at a time over all processes, with pauses after failures."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from functools import partial
from html import escape
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_workingmem._engine.calls import is_refusal
from langchain_workingmem._engine.plan import Plan, Sleep, Spawn, compute, send
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._text.messages import is_memory_tool, message_text, talk_kind, tool_call_ids
from langchain_workingmem._text.unicode import CHARACTERS_PER_TOKEN, keep_ends, length, visible
from langchain_workingmem._text.values import to_minute, zone_name
from langchain_workingmem.derived import Rows, ThreadRows, learn
from langchain_workingmem.errors import ModelError, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.history.read import complete_rows
from langchain_workingmem.models import StoredMessage
from langchain_workingmem.usage.counting import ask_counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.state import MemoryState

T = TypeVar("T")

_log = logging.getLogger("langchain_workingmem")

ATTEMPTS = 3  # questions to a model, each with what was wrong with the answer before
WAIT = 0.1  # seconds between two looks at the lease of another worker
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


class Unread(NamedTuple):
    """The messages of a thread that rows of a kind do not cover."""

    shown: Rows
    facts: list[Facts]  # of the current messages that shown rows do not cover, rising

    def waiting(self) -> list[Facts]:
        """Return what no row covers at all, also none that waits to be activated; no message that a provider has refused."""
        return [fact for fact in self.facts if fact.seq not in self.shown.ahead and not fact.is_refused]


def read_unread(rows: ThreadRows) -> Plan[Unread]:
    """Read which messages the rows of a kind do not cover. Two round trips."""
    shown = yield from rows.read()
    starts = [-1, *(high for _, high in shown.covered.pairs)]
    ends = [*(low for low, _ in shown.covered.pairs), "+inf"]
    gaps = [(f"({start}", f"({end}") for start, end in zip(starts, ends, strict=True)]
    order = rows.state.keys.of(rows.thread_id).order
    replies = yield from send(*(("ZRANGE", order, low, high, "BYSCORE") for low, high in gaps))
    texts = [text for reply in replies for text in reply]
    facts = yield from compute(lambda: [Facts.read(text.decode()) for text in texts], sum(map(len, texts)))
    return Unread(shown, facts)


def read_messages(rows: ThreadRows, facts: Sequence[Facts], shown: Rows) -> Plan[list[StoredMessage] | None]:
    """Read messages; None if some were edited or deleted since `shown` was read. One round trip, one more with media."""
    state, command = rows.state, rows.show()
    messages = state.keys.of(rows.thread_id).messages
    bodies, reply = yield from send(("HMGET", messages, *(fact.seq for fact in facts)), command)
    if learn(command, reply).stamp != shown.stamp:
        return None
    pairs = zip(facts, bodies, strict=True)
    stored = [(body, rows.thread_id, fact.seq, fact.total_tokens if fact.digest else 0) for fact, body in pairs]
    return (yield from complete_rows(state, [StoredMessage.of(*fields) for fields in stored if fields[0]]))


def groups_of(rows: Iterable[StoredMessage]) -> list[tuple[list[StoredMessage], bool]]:
    """Cut messages into what stays together, a call with its results or one message; tell of each whether it is finished."""
    groups, open_calls = list[list[StoredMessage]](), dict[str, list[StoredMessage]]()
    for row in rows:
        message = row.message
        group = open_calls.pop(message.tool_call_id, None) if isinstance(message, ToolMessage) else None
        if group is not None:
            group.append(row)
        else:
            groups.append([row])
            open_calls |= dict.fromkeys(tool_call_ids(message), groups[-1])
    unfinished = {*map(id, open_calls.values())}
    return [(group, id(group) not in unfinished) for group in groups]


def read_batch(
    rows: ThreadRows,
    facts: Sequence[Facts],
    shown: Rows,
    *,
    tokens: int,
    most: int,
    running_from: float = inf,
    unseen: int | None = None,
) -> Plan[list[list[StoredMessage]] | None]:
    """Read the oldest whole groups of at most so many `tokens` and about `most` messages, one group at least.

    None if the thread has changed. `running_from`: seq of the running turn's question; a call behind it without a result ends the batch,
    and so does one with a result of the seq `unseen`, the newest but for words of the user: the model has not seen it.
    """
    chosen, size = list[Facts](), 0
    for fact in facts:  # results that follow belong to what is chosen
        if chosen and (size > tokens or len(chosen) >= most) and (fact.digest or len(chosen) >= most + _LONGEST_GROUP):
            break
        chosen.append(fact)
        size += fact.tokens
    messages = yield from read_messages(rows, chosen, shown)
    if messages is None:
        return None
    weights, size, batch = {fact.seq: fact.tokens for fact in chosen}, 0, list[list[StoredMessage]]()
    for group, is_finished in groups_of(messages):
        size += sum(weights[row.place] for row in group)
        is_unseen = group[-1].place == unseen and isinstance(group[-1].message, ToolMessage)
        if (batch and size > tokens) or is_unseen or (not is_finished and group[-1].place > running_from):
            break
        batch.append(group)
    return batch


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
    budget = longest = most_tokens * CHARACTERS_PER_TOKEN
    for index, size in enumerate(sorted(map(length, texts))):  # short ones leave theirs to the others
        if size > (share := budget // (len(texts) - index)):
            longest = share
            break
        budget -= size
    lines = []
    if question is not None:
        lines.append(f"<question>{escaped(keep_ends(_text(question.message, {}), _MOST_QUOTED))}</question>")
    for number, (row, text) in enumerate(zip(rows, texts, strict=True), 1):
        time = f"{to_minute(row.stored_at, zone)} {zone_name(zone)}"
        head = f'<message n="{number}" role="{role_of(row.message)}" time="{time}">'
        lines.append(f"{head}{escaped(keep_ends(text, max(longest, _LEAST)))}</message>")
    return "\n".join(lines)


def tools_called(rows: Sequence[StoredMessage]) -> dict[str | None, str]:
    """Return the name of each tool that messages call, by the id of the call."""
    return {call["id"]: call["name"] for row in rows for call in getattr(row.message, "tool_calls", ())}


def role_of(message: BaseMessage) -> str:
    """Return whose words a message holds: user, assistant or tool."""
    if isinstance(message, ToolMessage | FunctionMessage):
        return "tool"
    return "user" if talk_kind(message) == "q" else "assistant"


def _text(message: BaseMessage, tools: dict[str | None, str]) -> str:
    name, text = message.name, message_text(message)
    if isinstance(message, ToolMessage):
        name = name or tools.get(message.tool_call_id)
        if is_memory_tool(name):  # it repeats what is stored already
            text = _LEFT_OUT
        elif message.status == "error":
            name = f"{name or 'tool'} (failed)"
    return f"{name}: {text}" if name else text


def escaped(text: str) -> str:
    """Return a text that cannot end the element of a prompt in which it stands."""
    return escape(visible(text), quote=False)


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


# ---------------------------------------------------------------------- working

# The workers of a process: it, the database by its secret, kind and thread; and whether there may be more to do. They share one token, so that what
# an event loop has left unfinished does not keep its lease from the next worker.
_WORKING: dict[tuple[int, str | bytes, str, str], bool] = {}
_TOKENS: dict[int, str] = {}  # by process: a fork is another one


class Worker:
    """The worker of a thread, while it has the lease."""

    kind: ClassVar[str]
    name: ClassVar[str]  # of its runs and tasks
    title: ClassVar[str]  # in logs

    def __init__(self, state: MemoryState, thread_id: str, user_id: str, seconds: float) -> None:
        self.state, self.thread_id, self.user_id = state, thread_id, user_id
        self.rows = ThreadRows(state, thread_id, user_id, self.kind)
        self.seconds = seconds  # for each call of a model
        self.until = inf  # by the clock of the process: then nothing more is begun
        self.now = False  # whatever thresholds and pauses say
        self.error: str | None = None  # why the model has failed
        self.about = ""  # what the model is asked about
        self._token = _TOKENS.setdefault(os.getpid(), uuid4().hex)
        self._mine = os.getpid(), state.secret or state.keys.prefix, self.kind, thread_id

    @property
    def zone(self) -> ZoneInfo | None:
        """Return the time zone of the user."""
        return self.state.zone(self.thread_id, self.user_id)

    def step(self) -> Plan[bool]:
        """Do one thing; return whether there may be more to do."""
        raise NotImplementedError

    def _stepped(self) -> Plan[bool]:
        try:
            return (yield from self.step())
        except ChangedError:
            return True

    def pause(self) -> Plan[None]:
        """Do what needs no model, while the workers pause."""
        yield from ()

    def in_background(self) -> Plan[None]:
        """Work in the background, unless a worker of this process does so."""
        if self._mine in _WORKING:
            _WORKING[self._mine] = True
            return

        def work() -> Plan[None]:
            try:
                yield from self.run()
            except (ThreadNotFoundError, ThreadOwnershipError):
                pass  # deleted or given away meanwhile
            except WorkingMemError as error:
                _log.warning("thread %r: %s has failed: %s", self.thread_id, self.title, error)

        def lost() -> None:
            _WORKING.pop(self._mine, None)
            _log.warning(
                "thread %r: %s was ended with its event loop, and goes on after the next turn; await memory.asettled() waits for it",
                self.thread_id,
                self.title,
            )

        yield Spawn(work(), slow=True, lost=lost, task=self.name)

    def run(self, *, now: bool = False) -> Plan[None]:
        """Work until there is nothing to do. `now`: whatever thresholds and pauses say, waiting for another worker."""
        self.now = now
        while not (yield from self.run_once()) and now and monotonic() < self.until:
            yield Sleep(WAIT)

    def run_once(self) -> Plan[bool]:
        """Work, or find that all pause; False: another worker has the lease."""
        if self._mine in _WORKING:
            return False
        _WORKING[self._mine] = True
        try:
            while _WORKING.get(self._mine):
                _WORKING[self._mine] = False
                wait, is_pause = yield from self._take()
                if wait == 0:
                    yield from self._work()
                elif is_pause:
                    yield from self.pause()
        finally:
            _WORKING.pop(self._mine, None)
        return wait == 0 or is_pause

    def _take(self) -> Plan[tuple[int, bool]]:
        """Take or prolong the lease: for a question to a model, and some time."""
        return self.rows.lease(self._token, int(self.seconds * 1000) + 15_000, force=self.now)

    def _work(self) -> Plan[None]:
        """Do all that there is to do, with the lease. A failure of the model is logged, and lets all workers pause."""
        try:
            while (yield from self._stepped()) and not self.state.closed and monotonic() < self.until:
                yield from self._take()
        except (BadAnswer, ModelError) as error:
            self.error = str(error)
            _log.warning("thread %r: %s has failed: %s", self.thread_id, self.title, error)
            unusable = self.about if isinstance(error, BadAnswer) or is_refusal(error) else None
            yield from self.rows.pause(self._token, unusable)
        except Exception:
            with suppress(WorkingMemError):
                yield from self.rows.lease(self._token, 0)
            raise
        else:
            yield from self.rows.lease(self._token, 0)

    def ask(
        self,
        model: BaseChatModel,
        shown: Rows,
        rules: str,
        data: str,
        read: Callable[[BaseMessage, Any], T],
        schema: type[Any],
        *,
        cost: int = 0,
    ) -> Plan[T]:
        """Ask until an answer can be read, three times at most. Raises `ModelError`, or the last `BadAnswer`.

        `read` gets the answer, and what it holds of the `schema` where the model can answer along one. What the calls take is
        counted. `cost` says how long reading takes, in characters beside those of the answer.
        """
        runnable: Any = model
        with suppress(Exception):  # whatever a model says that cannot: then its text is read
            runnable = model.with_structured_output(schema, include_raw=True)
        messages: list[BaseMessage] = [SystemMessage(rules), HumanMessage(data)]
        run = {"run_name": self.name, "metadata": {"thread_id": self.thread_id}}
        failure = BadAnswer()
        for attempt in range(ATTEMPTS):
            if attempt:  # the messages are shown again, so the thread has to be as it was
                yield from self._take()
                if (yield from self.rows.read()).stamp != shown.stamp:
                    raise ChangedError
            owner = (self.thread_id, self.user_id)
            answer = yield from ask_counted(self.state, *owner, runnable, messages, self.seconds, run)
            raw, parsed = (answer["raw"], answer["parsed"]) if isinstance(answer, dict) else (answer, None)
            try:
                return (yield from compute(partial(read, raw, parsed), cost + len(str(raw.content))))
            except BadAnswer as error:
                failure, text = error, keep_ends(visible(str(raw.text)).strip(), _MOST_ANSWERED) or "(no text)"
                messages = [*messages[:2], AIMessage(text), HumanMessage(f"{escaped(str(error))} {_AGAIN}")]
        raise failure
