"""The worker that keeps a document: it lets the keeper read what was said, and writes rows, then the document that they make."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._text.messages import is_memory_tool
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.derived import NewRow
from langchain_workingmem.keeping.document import KIND, KeeperNotes
from langchain_workingmem.keeping.operations import AnswerCheck, CheckedAnswer, Operations
from langchain_workingmem.keeping.prompts import earlier, keeper_rules, shown_document
from langchain_workingmem.keeping.renewal import renew
from langchain_workingmem.models import StoredMessage
from langchain_workingmem.observations.worker import (
    Unread,
    Worker,
    elements,
    read_batch,
    read_messages,
    read_unread,
    role_of,
    tools_called,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.values import Leaf
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.working_memory.store import ScopeKey

BATCH_TOKENS = 10_000  # tokens of messages in one call of the model
MOST_READ = 500  # messages: a row that says that so many are read is full
CALL_SECONDS = 120.0  # for each call of the model
_EARLIER = 2  # messages that are shown as reference
_COST = 50  # characters of a message that take as long to read as one of a document, which is read for each operation
# Tools of memory beside those that `is_memory_tool` knows: files of deep agents, Claude's memory, the MCP server
_OF_MEMORY = {"memory", "ls", "glob", "grep", "read_file", "write_file", "edit_file", "list_threads", "save_messages"}
_ROLES = {"user": "human", "assistant": "ai", "tool": "tool"}

_log = logging.getLogger("langchain_workingmem")


class Keeper(Worker):
    """The keeper of a document, in one thread of its owner."""

    kind, name, title = KIND, "keep", "the keeper"

    def __init__(self, state: MemoryState, scope_key: ScopeKey, thread_id: str, user_id: str) -> None:
        super().__init__(state, thread_id, user_id, CALL_SECONDS)
        self.scope_key, self.options = scope_key, state.remembering
        self.operations = self.left_out = 0

    def step(self) -> Plan[bool]:
        """Let the keeper read one batch."""
        unread = yield from read_unread(self.rows)
        facts = self._ready(unread.waiting())
        if not facts or (not self.now and sum(fact.tokens for fact in facts) < self.options.keep_after):
            return False
        size = max(1, BATCH_TOKENS >> unread.shown.failures)
        groups = yield from read_batch(self.rows, facts, unread.shown, tokens=size, most=MOST_READ)
        if groups is None:
            return True  # the thread has changed meanwhile
        rows = [row for group in groups for row in group]
        if not rows:
            return False
        before = yield from renew(self.state, self.scope_key)  # without what is deleted
        answer, reference = CheckedAnswer(before.text), list[StoredMessage]()
        self.about = f"{rows[0].place} {len(groups)}"
        if len(groups) == 1 and unread.shown.failed == self.about:
            _log.warning("thread %r: message %s could not be read by the keeper", self.thread_id, rows[0].message.id)
        elif any(role_of(row.message) != "assistant" for row in rows) or "ai" in self.options.trust:
            reference = yield from self._earlier(unread, rows[0])
            answer = yield from self._ask(unread, reference, rows, before)
            if answer.changes and _has_lost(before, (yield from renew(self.state, self.scope_key))):
                return True  # its words may be those of a message that was deleted meanwhile
        new, drop = self._rows(unread, [row.place for row in reference], rows, answer)
        written = yield from self.rows.commit(unread.shown, new, drop=drop)
        if written:
            self.operations, self.left_out = self.operations + len(answer.changes), self.left_out + answer.left_out
            if answer.changes:
                yield from renew(self.state, self.scope_key, (before, answer.text))
        return written is None or bool(written)  # more may have been said meanwhile

    def _ready(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return what may be read: in the background not a turn that has no answer yet."""
        if self.now:
            return [*facts]
        end = max((index + 1 for index, fact in enumerate(facts) if fact.digest.startswith("a")), default=0)
        return [*facts[:end]]

    def _ask(
        self,
        unread: Unread,
        reference: Sequence[StoredMessage],
        rows: Sequence[StoredMessage],
        memory: WorkingMemoryState,
    ) -> Plan[CheckedAnswer]:
        form, options, text = self.options.format, self.options, memory.text
        values = KeeperNotes.read(memory.kept).values
        document, numbers = shown_document(form, text, values, memory.updated_at, self.zone)
        data = f"{document}\n{earlier(reference)}{elements(rows, BATCH_TOKENS, zone=self.zone)}"
        sources = {number: author in options.trust for number, author in enumerate(_authors(rows), 1)}
        check = AnswerCheck(form, text, numbers, sources)
        model = cast("BaseChatModel", options.keeper)  # `install` has looked names up
        rules = keeper_rules(form, options.scope, options.instructions, options.trust)
        return (yield from self.ask(model, unread.shown, rules, data, check, Operations, cost=_COST * len(text)))

    def _earlier(self, unread: Unread, first: StoredMessage) -> Plan[list[StoredMessage]]:
        """Return what was said directly before the messages that are read."""
        keys = self.state.keys.of(self.thread_id)
        (reply,) = yield from send(
            ("ZRANGE", keys.order, f"({first.place}", "-inf", "BYSCORE", "REV", "LIMIT", 0, 4 * _EARLIER)
        )
        facts = [fact for fact in (Facts.read(text.decode()) for text in reply) if fact.digest and not fact.is_refused]
        facts = facts[:_EARLIER][::-1]
        return ((yield from read_messages(self.rows, facts, unread.shown)) or []) if facts else []

    def _rows(
        self,
        unread: Unread,
        reference: Sequence[int],
        rows: Sequence[StoredMessage],
        answer: CheckedAnswer,
    ) -> tuple[list[NewRow], list[int]]:
        """Return the row that says what is read, those of values, and the row before, which the first takes over.

        Values cite what was shown as `reference`, too: their words may come from it. The row of what is read cites nothing, so it stays
        when messages go, and what stays is not read twice; it tells of no time (`at`).
        """
        new_rows, by_path = [], dict[str, list[int]]()
        for id, body in unread.shown.rows.items():
            by_path.setdefault(body.get("path", ""), []).append(id)
        for change in answer.changes:
            cited = [rows[number - 1] for number in change.numbers]
            time, ids = max(to_micros(row.stored_at) for row in cited), [row.message.id or "" for row in cited]
            for path, leaf in change.leaves.items():
                body = {"at": time, "path": path, "value": leaf.value, "is_item": leaf.is_item, "ids": ids}
                replaced = [old_path for old_path, old in change.replaced.items() if _holds(leaf, old)]
                cited_rows = [id for old_path in replaced for id in by_path.get(old_path, ())]
                new_rows.append(NewRow(body, [*reference, *(row.place for row in cited)], cited_rows=cited_rows))
        counts = {id: body["read"] for id, body in unread.shown.rows.items() if "path" not in body}
        last = [id for id, count in counts.items() if count < MOST_READ][-1:]
        number = len(rows) + sum(counts[id] for id in last)
        seqs = [row.place for row in rows]
        read_row = NewRow({"at": 0, "read": number}, covers=seqs, replaces=last)
        return [read_row, *new_rows], last


def _holds(new: Leaf, old: Leaf) -> bool:
    """Tell whether a value may have words of one that it replaces: a line that was changed, or the path of what is gone."""
    return new.value is None or new.is_item or str(old.value) in str(new.value)


def _has_lost(before: WorkingMemoryState, after: WorkingMemoryState) -> bool:
    """Tell whether rows have gone from which a document was made."""
    old_threads, new_threads = KeeperNotes.read(before.kept).threads, KeeperNotes.read(after.kept).threads
    return any(not {*thread["ids"]} <= {*new_threads.get(id, {"ids": ()})["ids"]} for id, thread in old_threads.items())


def _authors(rows: Sequence[StoredMessage]) -> list[str]:
    """Return whose words each message holds: what a tool of memory returns was said elsewhere, so it is no source."""
    tools = tools_called(rows)
    authors = []
    for row in rows:
        message = row.message
        name = message.name or tools.get(getattr(message, "tool_call_id", ""))
        role = _ROLES[role_of(message)]
        is_own = role == "tool" and (is_memory_tool(name) or name in _OF_MEMORY)
        authors.append("memory" if is_own else role)
    return authors
