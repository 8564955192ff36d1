"""Values that leave Redis and come back: copies of threads, exports and imports.

On the way a message goes by its id, because a copy has other positions, and perhaps not all messages.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import continue_sweep, run_script
from langchain_workingmem._redis.codec import as_dict, from_micros
from langchain_workingmem._redis.keys import decode, encode, values_key
from langchain_workingmem._redis.scripts import STEP_BYTES, Script
from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.keeping.claims import Claim, Source, read_claim, write_claim
from langchain_workingmem.keeping.store.commits import READ, VALUES, change_kept, mark_command, read_kept
from langchain_workingmem.keeping.store.outlines import outlined
from langchain_workingmem.users import sections
from langchain_workingmem.working_memory import as_seen, find_scope_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.keeping.store.commits import Kept, Made
    from langchain_workingmem.models import Thread

RESTORE = Script("keeping/restore", *VALUES)
CURSOR = Script("keeping/cursor", *VALUES)
ATTEMPTS = 3  # to write values whose messages others change meanwhile
NEAR = 100  # messages before a cursor, of which one is in a copy
ORIGINS = ("keeper", "tool", "program", "person")


# ---------------------------------------------------------------------- copies of threads


def copied(
    state: MemoryState, source: str, owner: str, copy: Thread, new_ids: Mapping[str, str], scopes: str
) -> Plan[None]:
    """Let the copy of a thread have its values, as far as their messages are in it; of a user it has how far a keeper has read.

    The keeper of another user than the `owner` of the source begins anew.

    Up to six round trips. `scopes` is the field `kept` of the source.
    """
    options = state.working_memory
    if "t" in scopes and options is not None and options.scope == "thread":
        yield from _copy_values(state, source, owner, copy, new_ids)
    if "u" in scopes and owner == copy.user_id:
        key = values_key(state.keys.of_user(copy.user_id)[1])
        (cursor,) = yield from send(("HGET", key, f"k:{encode(source)}"))
        seq = yield from _copied_cursor(state.keys, source, copy.id, new_ids, int(cursor or -1))
        if seq is not None:
            yield from send(mark_command(state, copy.id, copy.user_id, "user"))
            yield from send(CURSOR.call(state.keys.of_user(copy.user_id), encode(copy.id), seq))


def _copy_values(state: MemoryState, source: str, owner: str, copy: Thread, new_ids: Mapping[str, str]) -> Plan[None]:
    """Copy the working memory of a thread with its values."""
    origin = yield from read_kept(state, (yield from find_scope_key(state, source, owner)))
    seqs = yield from positions(state.keys, copy.id, new_ids.values())
    cursor = yield from _copied_cursor(state.keys, source, copy.id, new_ids, origin.cursor(source))

    def moved(one: Source) -> Source:
        id = new_ids[one.message_id]
        return Source(copy.id, id, seqs[id], one.said_at)

    def make(_: Kept) -> Made:
        found = [
            replace(left, sources=tuple(moved(one) if one.thread_id == source else one for one in left.sources))
            for one in origin.values.claims.values()
            if (left := one.only(lambda each: each.thread_id != source or new_ids.get(each.message_id) in seqs))
        ]
        return found, origin.values.layout

    scope_key = yield from find_scope_key(state, copy.id, copy.user_id)
    yield from change_kept(state, scope_key, make, "clone", cursor=None if cursor is None else (copy.id, cursor))


def _copied_cursor(keys: Keys, source: str, copy: str, new_ids: Mapping[str, str], cursor: int) -> Plan[int | None]:
    """Return the position in a copy up to which a keeper has read its source; None: nothing near it is in the copy."""
    if cursor < 0:
        return None
    (read,) = yield from send(("ZRANGE", keys.of(source).order, cursor, "-inf", "BYSCORE", "REV", "LIMIT", 0, NEAR))
    last = next((new_ids[id.decode()] for id in read if id.decode() in new_ids), None)
    (seq,) = (yield from send(("ZSCORE", keys.of(copy).order, last))) if last else (None,)
    return None if seq is None else int(float(seq))


def positions(keys: Keys, thread_id: str, ids: Iterable[str]) -> Plan[dict[str, int]]:
    """Return the positions of the messages that are stored, on all branches. One round trip."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    own = keys.of(thread_id)
    columns = yield from send(*(("ZMSCORE", key, *wanted) for key in (own.superseded, own.order)))
    found = {id: float(one) for column in columns for id, one in zip(wanted, column, strict=True) if one is not None}
    return {id: int(seq) for id, seq in found.items() if seq.is_integer()}


# ---------------------------------------------------------------------- records of archives


def exported(state: MemoryState, thread_id: str | None, user_id: str) -> Plan[list[dict[str, Any]]]:
    """Return the record of the values of a working memory, of a thread or (None) of a user. Two round trips."""
    keys = state.keys.of_user(user_id) if thread_id is None else state.keys.of(thread_id)
    ((memory, values, _),) = yield from run_script(thread_id or "", user_id, READ.call(keys, encode(user_id), 0))
    row, fields = as_dict(memory), as_dict(values)
    if b"kept" not in row:
        return []
    cursors = [(decode(name[2:]), int(value)) for name, value in fields.items() if name.startswith(b"k:")]
    calls = [
        ("ZRANGE", state.keys.of(thread).order, seq, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1) for thread, seq in cursors
    ]
    replies = (yield from send(*calls)) if calls else []
    read = [[thread, reply[0].decode()] for (thread, _), reply in zip(cursors, replies, strict=True) if reply]
    claims = [read_claim(value) for name, value in fields.items() if name.startswith(b"c:")]
    record = {
        "kind": "values",
        "thread_id": thread_id,
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "form": fields[b"form"].decode(),
        "layout": json.loads(fields.get(b"layout", b"[]")),
        "read": read,
        "claims": [*map(_record, sorted(claims, key=lambda one: (one.recorded_at, one.order, one.path)))],
    }
    return [record]


def _record(claim: Claim) -> dict[str, Any]:
    sources = [
        [one.thread_id, one.message_id, *([from_micros(one.said_at).isoformat()] if one.said_at else [])]
        for one in claim.sources
    ]
    times = {name: from_micros(getattr(claim, name)).isoformat() for name in ("said_at", "recorded_at")}
    named = {name: getattr(claim, name) for name in ("path", "value", "is_set", "origin", "order", "is_line")}
    return {**named, **times, "sources": sources}


def _path(path: str) -> str:
    path.encode()  # an error unless it is valid Unicode
    if path and not path.startswith("/"):
        raise OptionError(f"{path!r} is no path", remedy="begin it with a slash")
    return path


class SourceRecord(sections.Record):
    """A message behind a claim."""

    thread_id: sections.Id
    message_id: sections.Id
    said_at: sections.Micros | None = None


class ClaimRecord(sections.Record):
    """What was said about a value."""

    path: Annotated[str, AfterValidator(_path)]
    value: Any = None
    is_set: bool = True
    is_line: bool = False
    said_at: sections.Micros
    recorded_at: sections.Micros
    origin: str
    order: Annotated[int, Field(ge=0, le=2**31)] = 0
    sources: sections.Listed[SourceRecord] = Field(default=[])

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: Any) -> Any:
        check_depth(json.dumps(value, allow_nan=False)).encode()
        return value

    @field_validator("origin")
    @classmethod
    def _check_origin(cls, origin: str) -> str:
        if origin not in ORIGINS:
            raise OptionError(f"origin {origin!r} is unknown", remedy=f"use one of {', '.join(ORIGINS)}")
        return origin

    @field_validator("sources", mode="before")
    @classmethod
    def _name_sources(cls, given: Any) -> Any:
        return [dict(zip(("thread_id", "message_id", "said_at"), one, strict=False)) for one in given]

    def claim(self, stands: Callable[[str, str], int | None]) -> Claim | None:
        """Return the claim as far as its messages stand, given their positions; None if it has none any more."""
        sources = tuple(
            Source(
                one.thread_id,
                one.message_id,
                seq if (seq := stands(one.thread_id, one.message_id)) is not None else -1,
                one.said_at or 0,
            )
            for one in self.sources
        )
        named = self.model_dump(exclude={"sources"})
        return Claim(**named, sources=sources).only(lambda one: one.seq >= 0)


class ValuesRecord(sections.Record, kind="values"):
    """The values of a working memory of the archive, which is written before them."""

    cites = True
    thread_id: sections.ThreadId | None = None
    revision: Annotated[int, Field(ge=1)]
    updated_at: sections.Micros
    form: Annotated[str, Field(pattern=r"^(json($|\n)|text\n)")]
    layout: sections.Listed[str]
    read: sections.Listed[Annotated[sections.Listed[sections.Id], Field(min_length=2, max_length=2)]] = Field(
        default=[]
    )
    claims: sections.Listed[ClaimRecord]

    @field_validator("form")
    @classmethod
    def _check_form(cls, form: str) -> str:
        kind, _, outline = form.partition("\n")
        if kind == "json":
            outlined(check_depth(outline))
        return form

    def model_post_init(self, _: Any, /) -> None:
        """Check that one call can hold them."""
        self.form.encode()
        sections.check_size(
            [self.form, *self.layout, *(write_claim(one) for one in self._claims(lambda *_: 0))], STEP_BYTES
        )

    def _claims(self, stands: Callable[[str, str], int | None]) -> list[Claim]:
        found = (one.claim(stands) for one in self.claims)
        return [one for one in found if one is not None]

    def write(self, load: Any) -> Plan[None]:
        """Write them, unless the working memory is another one or kept already."""
        state: MemoryState = load.state
        keys = state.keys.of_user(load.owner) if self.thread_id is None else state.keys.of(self.thread_id)
        cited: dict[str, dict[str, None]] = {thread: {id: None} for thread, id in self.read}
        for one in self.claims:
            for source in one.sources:
                cited.setdefault(source.thread_id, {})[source.message_id] = None
        threads = [thread for thread in cited if thread in load.threads]
        with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
            for _ in range(ATTEMPTS):
                if (yield from self._write(load, keys, threads, cited)):
                    return

    def _write(
        self, load: Any, keys: tuple[str, ...], threads: Collection[str], cited: Mapping[str, Iterable[str]]
    ) -> Plan[bool]:
        """Tell whether it is done. A round trip for each thread, three beside."""
        state, owner = load.state, encode(load.owner)
        scope = "user" if self.thread_id is None else "thread"
        calls = [mark_command(state, thread, load.owner, scope) for thread in threads]
        *_, (row, fields, _) = yield from run_script(
            self.thread_id or "", load.owner, *calls, READ.call(keys, owner, 1), in_order=True
        )
        memory, version = as_dict(row), as_dict(fields).get(b"version", b"")
        seen = f"{self.revision}@{self.updated_at}"
        if b"kept" in memory or as_seen(memory) != seen:
            return True
        found_at = {}
        for thread in threads:
            found_at[thread] = yield from positions(state.keys, thread, cited[thread])

        def stands(thread: str, id: str) -> int | None:
            return None if load.differs((thread, id)) else found_at.get(thread, {}).get(id)

        claims = self._claims(stands)
        is_less = sum(len(one.sources) for one in claims) < sum(len(one.sources) for one in self.claims)
        pairs: list[Any] = ["form", self.form, "layout", json.dumps(self.layout)]
        for thread, id in self.read:
            if (seq := stands(thread, id)) is not None:
                pairs += [f"k:{encode(thread)}", seq]
        for claim in claims:
            pairs += [f"c:{claim.id}", write_claim(claim)]
        ((written, left),) = yield from run_script(
            self.thread_id or "", load.owner, RESTORE.call(keys, owner, version, seen, int(is_less), *pairs)
        )
        if self.thread_id is not None:
            yield from continue_sweep(state, self.thread_id, left)
        return bool(written)
