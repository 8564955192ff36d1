"""The plan that exports all data of a user as records: dicts of JSON values with a `kind`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import message_to_dict

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem.derived import export_rows
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.history import PageOfThread, made, page_command
from langchain_workingmem.threads import list_threads, read_thread
from langchain_workingmem.users.sections import END, header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command, Step
    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

    Records: TypeAlias = "list[dict[str, Any]]"
    # A part of an export: it gives records, and the parts that come next, before all others.
    Part: TypeAlias = "Callable[[], Plan[tuple[Records, list[Part]]]]"

BATCH = 200  # messages of one round trip


def export(state: MemoryState, user_id: str, *, vectors: bool) -> Step[dict[str, Any]]:
    """Return all data of a user, step by step. A round trip per 100 threads, and one per thread and 200 messages."""
    yield from state.indexes.ready()
    head = header(check_id(user_id, "user_id"))
    this = _Export(state, user_id, vectors)
    return [{**head, "ends": True}], _steps([this.user], Counter())  # an archive without its last record is not whole


def _steps(parts: list[Part], counts: Counter[str]) -> Step[dict[str, Any]]:
    records, more = yield from parts[0]()
    counts.update(record["kind"] for record in records)
    left = [*more, *parts[1:]]
    if left:
        return records, _steps(left, counts)
    return [*records, {"kind": END, "records": {**counts}}], None


class _Export:
    """The parts of an export."""

    def __init__(self, state: MemoryState, user_id: str, vectors: bool) -> None:  # noqa: FBT001 - as `export` has it
        self.state, self.user_id, self.vectors = state, user_id, vectors

    def user(self) -> Plan[tuple[Records, list[Part]]]:
        """Return what the user has beside threads; they follow."""
        keys = self.state.keys
        _, *memory = keys.of_user(self.user_id)
        *stored, has_files = yield from send(
            *_memory_commands(*memory), ("EXISTS", *keys.files_of_user(self.user_id)[1:])
        )
        parts: list[Part] = [partial(self.page, None)]
        if has_files:
            parts.append(lambda: self.wing(wing("files").exported(self.state, self.user_id)))
        return _memory_records(None, *stored), parts

    def wing(self, step: Step[dict[str, Any]]) -> Plan[tuple[Records, list[Part]]]:
        """Return a step of what a wing exports."""
        records, rest = yield from step
        return [*records], [] if rest is None else [partial(self.wing, rest)]

    def page(self, cursor: str | None) -> Plan[tuple[Records, list[Part]]]:
        """List 100 threads."""
        page = yield from list_threads(self.state, self.user_id, None, 100, cursor, "created_at", descending=False)
        parts: list[Part] = [partial(self.thread, thread.id) for thread in page]
        return [], parts if page.next_cursor is None else [*parts, partial(self.page, page.next_cursor)]

    def thread(self, id: str) -> Plan[tuple[Records, list[Part]]]:
        """Return a thread, its working memory and its first messages; nothing if it is deleted or has another owner by now."""
        keys = self.state.keys.of(id)
        fields, ids, *memory = yield from send(
            ("HGETALL", keys.thread), ("HGETALL", keys.ids), *_memory_commands(keys.memory, keys.revisions)
        )
        thread = read_thread(id, fields)
        if thread is None or thread.user_id != self.user_id:
            return [], []
        is_made = b"title_source" in as_dict(
            fields
        )  # by a model: the title comes with the message that it was made from
        names = ("id", "metadata", "created_at", "updated_at", "source_id")
        record = {"kind": "thread", **{name: _plain(getattr(thread, name)) for name in names}}
        record["title"] = None if is_made else thread.title
        if deleted := [id.decode() for id, value in as_dict(ids).items() if value.startswith(b"x")]:
            record["deleted"] = deleted
        return [record, *_memory_records(id, *memory)], [partial(self.messages, id, thread.title)]

    def messages(self, id: str, title: str | None, above: int | None = None) -> Plan[tuple[Records, list[Part]]]:
        """Return about 200 messages, the superseded ones where they were. One round trip, one more if some have media."""
        wanted = {"limit": BATCH, "above": above, "vectors": self.vectors}
        kinds: tuple[dict[str, bool], ...] = ({}, {"superseded": True})
        replies = yield from send(*(page_command(self.state, id, self.user_id, {**wanted, **kind}) for kind in kinds))
        try:
            pages = [
                PageOfThread.read(reply, id, self.user_id, superseded=bool(kind))
                for reply, kind in zip(replies, kinds, strict=True)
            ]
        except ThreadOwnershipError:  # transferred meanwhile
            return [], []
        end = min((page.facts[-1].seq for page in pages if len(page.facts) == BATCH), default=None)
        rows = yield from made(
            self.state, [row for page in pages for row in page.rows() if end is None or row.place <= end]
        )
        facts = {one.seq: one for page in pages for one in page.facts}
        stored = {one.seq: them for page in pages for one, them in zip(page.facts, page.vectors, strict=False)}
        source = pages[0].title_source

        def records() -> Records:
            found = []
            for row in sorted(rows, key=lambda row: row.place):
                record = _message(row, facts[row.place], [as_dict(one) for one in stored.get(row.place, ())])
                found.append(record | ({"title": title} if source == str(row.place) else {}))
            return found

        size = sum(len(str(row.record["data"]["content"])) for row in rows)
        next_part = partial(self.rows, id) if end is None else partial(self.messages, id, title, end)
        return (yield from compute(records, size)), [next_part]

    def rows(self, id: str) -> Plan[tuple[Records, list[Part]]]:
        """Return what models have made of the messages. One round trip, two if there is something."""
        found = yield from export_rows(self.state, id)
        return [{"kind": "rows", "thread_id": id, "rows": found}] if found else [], []


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _message(row: StoredMessage, facts: Facts, vectors: Sequence[Mapping[bytes, bytes]]) -> dict[str, Any]:
    # stored messages may hold NaN, which is not JSON
    message = json.loads(json.dumps(message_to_dict(row.message)), parse_constant=lambda _: None)
    record = {"kind": "message", "thread_id": row.thread_id, "stored_at": _plain(row.stored_at), "message": message}
    flags = {"superseded": not facts.is_current, "refused": facts.is_refused, "structured": facts.is_structured}
    record |= {name: True for name, is_set in flags.items() if is_set}
    if facts.writer:
        record["writer"] = facts.writer
    if facts.settings and all(vectors) and len(vectors) == int(facts.vectors.rpartition("/")[2]):  # none is evicted
        data = [b64encode(vector[b"vector"]).decode() for vector in vectors]
        record["vectors"] = {"settings": facts.settings, "data": data}
    return record


def _memory_commands(memory: str, revisions: str) -> list[Command]:
    return [("HGETALL", memory), ("XRANGE", revisions, "-", "+")]


def _memory_records(thread_id: str | None, memory: Any, entries: list[Any]) -> Records:
    row = as_dict(memory)
    if not row:
        return []
    revisions = [_state(as_dict(fields)) for _, fields in entries]
    record = {"kind": "working_memory", "thread_id": thread_id, **_state(row), "revisions": revisions}
    return [record | ({"kept": row[b"kept"].decode()} if b"kept" in row else {})]


def _state(row: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {
        "document": row[b"document"].decode(),
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "origin": row[b"origin"].decode(),
    }
