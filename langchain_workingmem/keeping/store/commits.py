"""Values in Redis: read a working memory with its values, and write values with the document that follows from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import (
    continue_sweep,
    create_thread_document,
    guarded_write,
    owner_tag,
    run_script,
)
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import covered_key, decode, encode
from langchain_workingmem._redis.scripts import COMMON, Script, note_covered
from langchain_workingmem._text.ranges import contains, numbers_in, parse_ranges, ranges_of, write_ranges
from langchain_workingmem.errors import (
    ThreadExistsError,
    ThreadNotFoundError,
    UserDeletedError,
    WorkingMemoryConflictError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.keeping.claims import Claim, read_claim, write_claim
from langchain_workingmem.keeping.starts import starts_of
from langchain_workingmem.keeping.store.outlines import form_of, form_of_text, same_kind
from langchain_workingmem.keeping.values import Values, seed
from langchain_workingmem.working_memory import ATTEMPTS, as_seen, check_document, pause_after, reader_of

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.working_memory import ScopeKey

VALUES = (*COMMON, "ranges", "keeping/values")
READ = Script("keeping/read", *VALUES)
COMMIT = Script("keeping/commit", *VALUES)
MARK = Script("keeping/mark", *VALUES)

Digests: TypeAlias = Mapping[tuple[str, str], str]  # of messages as they were read, by thread and id
Made: TypeAlias = tuple[Sequence[Claim], tuple[str, ...] | None]  # new claims, and the layout; None: it stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A working memory with its values, as they were read in one step."""

    state: WorkingMemoryState  # its text follows from the values, also where the stored one has to be made again
    values: Values
    form: Format
    now: int  # microseconds since the epoch, by the server's clock
    is_kept: bool  # False: no keeper has written into it, and the values are the document's as it stands
    fields: Mapping[str, bytes] = field(default_factory=dict)  # of the values in Redis, such as cursors
    erasing: Mapping[str, Sequence[Ranges | None]] = field(
        default_factory=dict
    )  # messages of threads that go; None: all
    row: Mapping[bytes, bytes] = field(default_factory=dict)  # of the memory in Redis

    def cursor(self, thread_id: str) -> int:
        """Return the position up to which a keeper has read a thread, -1: nothing of it."""
        return int(self.fields.get(f"k:{encode(thread_id)}", -1))

    def again(self, thread_id: str) -> Ranges:
        """Return the positions of messages that were edited since a keeper has read them."""
        return parse_ranges(self.fields.get(f"again:{encode(thread_id)}", b"").decode())

    @property
    def claims(self) -> dict[str, bytes]:
        """Return the stored claims by the names of their fields."""
        return {name: value for name, value in self.fields.items() if name.startswith("c:")}

    def is_same(self, before: Kept) -> bool:
        """Tell whether the values were not deleted since they were read by a keeper."""
        return "version" in self.fields and self.fields.get("began") == before.fields.get("began")

    def is_going(self, thread_id: str, seq: int) -> bool:
        """Tell whether a message is being deleted or edited."""
        return any(one is None or contains(one, seq) for one in self.erasing.get(thread_id, ()))


def keys_of(scope_key: ScopeKey) -> tuple[str, ...]:
    """Return the KEYS of scripts over values."""
    keys = scope_key.keys
    return keys if scope_key.thread_id is None else (*keys, covered_key(keys[0]))


def mark_command(state: MemoryState, thread_id: str, user_id: str | None, scope: str) -> Command:
    """Return the command by which a keeper says that it reads a thread, before it reads a message; it replies 0 without a thread."""
    keys = state.keys.of(thread_id)
    note_covered(keys.thread)  # then the next save of this process is not sent twice
    return MARK.call(keys, owner_tag(user_id), scope[0])


def digest_of(value: bytes) -> str:
    """Return a digest of a stored message: another one after an edit."""
    return hashlib.sha1(value[value.index(b'"type":') :], usedforsecurity=False).hexdigest()


def read_kept(state: MemoryState, scope_key: ScopeKey, *, opens: bool = False, like: Kept | None = None) -> Plan[Kept]:
    """Read a working memory with its values. One round trip; `ThreadOwnershipError`.

    `opens`: a keeper is about to write, perhaps where nothing is yet. Then a deletion meanwhile refuses what it writes. `like` is
    another one, in whose format a document that no keeper has kept is read, if it is of this kind.
    """
    call = READ.call(keys_of(scope_key), owner_tag(scope_key.user_id), int(opens))
    ((memory, values, now),) = yield from run_script(scope_key.thread_id or "", scope_key.user_id, call)
    return _kept(state, scope_key, as_dict(memory), as_dict(values), int(now), like)


def _kept(
    state: MemoryState,
    scope_key: ScopeKey,
    row: dict[bytes, bytes],
    stored: Mapping[bytes, bytes],
    now: int,
    like: Kept | None,
) -> Kept:
    fields = {name.decode(): value for name, value in stored.items()}
    read, is_kept = reader_of(state, scope_key), b"kept" in row
    found = read(row)
    form = state.remembering.format
    hidden, erasing = set(), {}
    for name, value in fields.items():
        kind, _, tag = name.partition(":")
        if kind == "h":
            ranges = parse_ranges(value.decode().partition("/")[2])
            hidden |= {(decode(tag), seq) for seq in numbers_in(ranges)}
        elif kind == "e":
            given = [one.partition("/")[2] for one in value.decode().split(";")]
            erasing[decode(tag)] = [None if one == "all" else parse_ranges(one) for one in given]
    if is_kept:
        form = same_kind(form, fields["form"].decode())
        claims = {name[2:]: read_claim(value) for name, value in fields.items() if name.startswith("c:")}
        layout = tuple(json.loads(fields.get("layout", b"[]")))
        values = Values({one.id: one for one in claims.values()}, layout, frozenset(hidden))
        if b"stale" in row:
            found = read({**row, b"document": values.render(form).encode()})
    else:
        form = form_of_text(form if like is None or not like.is_kept else like.form, found.text)
        written = int(row.get(b"updated_at", now))
        seeds, layout = seed(form, found.text, written) if found.text else ([], ())
        values = Values({one.id: one for one in seeds}, layout, frozenset(hidden))
    return Kept(
        state=found, values=values, form=form, now=now, is_kept=is_kept, fields=fields, erasing=erasing, row=row
    )


def change_kept(
    state: MemoryState,
    scope_key: ScopeKey,
    make: Callable[[Kept], Made],
    origin: str,
    expected: int | None = None,
    cursor: tuple[str, int] | None = None,
    *,
    seen: Digests | None = None,
    reread: Ranges = (),
    was: Kept | None = None,
) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
    """Add claims to a working memory, which is kept from then on; return the states before and after.

    `make` is called again when another writer was faster. `seen` are the messages that the claims cite, as a keeper has read them:
    what cites one that was deleted, edited or given away since is left out. `cursor` says how far a keeper has read a thread, and
    `reread` which messages it has read again. `was` is what was read before: if that was deleted since, nothing is written, and
    `UserDeletedError` or `ThreadNotFoundError` is raised. Two round trips, three with `seen`; `WorkingMemoryConflictError` with
    `expected`, or after `ATTEMPTS` lost races.
    """
    rows = yield from change_row(state, scope_key, make, origin, expected, cursor, seen=seen, reread=reread, was=was)
    read = reader_of(state, scope_key)
    return read(rows[0]), read(rows[1])


def change_row(
    state: MemoryState,
    scope_key: ScopeKey,
    make: Callable[[Kept], Made],
    origin: str,
    expected: int | None = None,
    cursor: tuple[str, int] | None = None,
    *,
    seen: Digests | None = None,
    reread: Ranges = (),
    was: Kept | None = None,
    into: Format | None = None,
    is_repeated: Callable[[Kept], Plan[bool]] | None = None,
    joins: tuple[str, Kept] | None = None,
) -> Plan[tuple[dict[bytes, bytes], dict[bytes, bytes]]]:
    """Do what `change_kept` does, and return the rows of the memory; `is_repeated` tells whether `expected` + 1 is this change.

    `into` is the format of the claims where it is of another kind than the one in which the values are kept: from then on they are
    kept in it. What was kept before stays in the history.
    `joins` are a user and its working memory, whose claims are made: what is known of its threads goes along.
    """
    owners, other = ([], None) if joins is None else ([joins[0]], joins[1])
    for attempt in range(1, ATTEMPTS + 1):
        kept = yield from read_kept(state, scope_key, opens=seen is not None and was is None, like=other)
        if was is not None and not kept.is_same(was):
            if scope_key.thread_id is None:
                raise UserDeletedError(scope_key.user_id or "")
            raise ThreadNotFoundError(scope_key.thread_id)
        before = {**kept.row, b"document": kept.state.text.encode()}
        if expected is not None and expected != kept.state.revision:
            if attempt == 1 and is_repeated is not None and (yield from is_repeated(kept)):
                return before, before
            break
        gone = (yield from _changed_since(state, [scope_key.user_id, *owners], seen)) if seen else frozenset()
        made, layout = make(kept)
        if made and into is not None and type(into) is not type(kept.form):
            kept = replace(kept, form=into)
        claims = _standing(kept, made, gone)
        values = kept.values.adding(claims, state.remembering.revisions)
        values = values if other is None else replace(values, hidden=values.hidden | other.values.hidden)
        if layout is not None and len(claims) == len(made):
            values = replace(values, layout=layout)
        text = kept.state.text
        is_kept = kept.is_kept or bool(claims)
        if values != kept.values:
            text = check_document(state, values.render(kept.form))
            if not _is_valid(kept.form, text) and _is_valid(kept.form, kept.state.text):
                kept.form.value(text)  # raises
        moved = {} if cursor is None else _moved(kept, *cursor, reread)
        moved |= {} if other is None else _joined(kept, other)
        is_same = b"stale" not in kept.row and values == kept.values
        if not moved and (is_same or not is_kept):
            return before, before
        call = _commit(state, scope_key, kept, values if is_kept else None, text, origin, moved)
        reply = yield from _committed(state, scope_key, call, text)
        if reply is not None:
            return before, {**reply, b"document": text.encode()}
        if attempt % 2 == 0:
            yield pause_after(attempt)
    actual = kept.state.revision
    raise WorkingMemoryConflictError(expected=actual if expected is None else expected, actual=actual)


def _is_valid(form: Format, text: str) -> bool:
    """Tell whether a schema allows a document; it may not, where the message behind a required value was deleted."""
    try:
        form.value(text)
    except WorkingMemoryValidationError:
        return False
    return True


def _standing(kept: Kept, claims: Sequence[Claim], gone: frozenset[tuple[str, str]]) -> list[Claim]:
    """Return the claims as far as their messages are what they were."""
    found = (
        one.only(lambda source: source[:2] not in gone and not kept.is_going(source.thread_id, source.seq))
        for one in claims
    )
    return [one for one in found if one is not None]


def _changed_since(state: MemoryState, owners: Sequence[str | None], seen: Digests) -> Plan[frozenset[tuple[str, str]]]:
    """Return the messages that are gone, given away, or not what they were when they were read. One round trip."""
    ids: dict[str, list[str]] = {}
    for thread_id, id in seen:
        ids.setdefault(thread_id, []).append(id)
    keys = [state.keys.of(thread_id) for thread_id in ids]
    commands: list[Command] = [("HGET", one.thread, "user") for one in keys]
    commands += [("HMGET", one.messages, *some) for one, some in zip(keys, ids.values(), strict=True)]
    replies = yield from send(*commands)
    tags, bodies = replies[: len(ids)], replies[len(ids) :]
    known = None if None in owners else {owner_tag(one).encode() for one in owners}
    return frozenset(
        (thread_id, id)
        for (thread_id, some), tag, values in zip(ids.items(), tags, bodies, strict=True)
        for id, value in zip(some, values, strict=True)
        if value is None or (known is not None and tag not in known) or digest_of(value) != seen[thread_id, id]
    )


def _moved(kept: Kept, thread_id: str, seq: int, reread: Ranges) -> dict[str, str]:
    """Return the fields that say how far a keeper has read a thread."""
    found = {f"k:{encode(thread_id)}": str(max(seq, kept.cursor(thread_id)))}
    if reread:
        left = {*numbers_in(kept.again(thread_id))} - {*numbers_in(reread)}
        found[f"again:{encode(thread_id)}"] = write_ranges(ranges_of(left))
    return found


def _joined(kept: Kept, other: Kept) -> dict[str, str]:
    """Return the fields that say what keepers know, and do not know yet, of the threads of another memory."""
    found = {
        name: value.decode()
        for name, value in other.fields.items()
        if name.partition(":")[0] in {"k", "again", "h", "d"} and name not in kept.fields
    }
    due, more = (
        {entry.partition("/")[0]: entry for entry in one.fields.get("due", b"").decode().split(";") if entry}
        for one in (kept, other)
    )
    return found | ({"due": ";".join((more | due).values())} if more.keys() - due.keys() else {})


def _commit(
    state: MemoryState,
    scope_key: ScopeKey,
    kept: Kept,
    values: Values | None,
    text: str,
    origin: str,
    fields: dict[str, str],
) -> Command:
    since, gone = "", list[str]()
    if values is not None:
        claims = {f"c:{id}": write_claim(one).encode() for id, one in values.claims.items()}
        stored = kept.claims
        gone = [name for name in stored if name not in claims]
        fields = fields | _left_out(kept, gone)
        changed: dict[str, Any] = {name: value for name, value in claims.items() if stored.get(name) != value}
        described = {"layout": json.dumps(values.layout), "form": form_of(kept.form)}
        fields = fields | {name: value for name, value in described.items() if kept.fields.get(name) != value.encode()}
        fields = {**fields, **changed}
        since = json.dumps(starts_of(kept.form, text, values.present(kept.form)))
    return COMMIT.call(
        keys_of(scope_key),
        owner_tag(scope_key.user_id),
        as_seen(kept.row),
        kept.fields.get("version", b""),
        state.remembering.revisions,
        origin,
        int(values is not None),
        text,
        since,
        len(gone),
        *gone,
        *(part for pair in fields.items() for part in pair),
    )


def _left_out(kept: Kept, names: Sequence[str]) -> dict[str, str]:
    """Return the fields that say what the bounds of the history leave out: revisions may hold it until its messages go.

    Each is when the first of it was recorded, when it was left out, and the messages: "all", or positions.
    """
    found: dict[str, str] = {}
    until = max(kept.now, int(kept.row.get(b"updated_at", 0)))
    for claim in (read_claim(kept.fields[name]) for name in names):
        for source in claim.sources:
            name = f"d:{encode(source.thread_id)}"
            before = found.get(name) or kept.fields.get(name, b"").decode() or f"{claim.recorded_at}//"
            since, _, seqs = before.split("/")
            if source.seq < 0 or seqs == "all":
                seqs = "all"
            else:
                seqs = write_ranges(ranges_of({*numbers_in(parse_ranges(seqs)), source.seq}))
            found[name] = f"{min(int(since), claim.recorded_at)}/{until}/{seqs}"
    return found


def _committed(state: MemoryState, scope_key: ScopeKey, call: Command, text: str) -> Plan[dict[bytes, bytes] | None]:
    """Send a commit, and return the row of the memory; None: another writer was faster. A missing thread is created."""
    thread_id, user_id = scope_key.thread_id, scope_key.user_id
    if thread_id is None:
        ((status, _, row),) = yield from run_script("", user_id, call)
        return as_dict(row) if status else None
    try:
        status, left, row = yield from guarded_write(state, thread_id, [user_id], call)
    except ThreadNotFoundError:
        if not text:
            return {}
        with suppress(ThreadExistsError):
            yield from create_thread_document(state, thread_id, user_id or thread_id)
        status, left, row = yield from guarded_write(state, thread_id, [user_id], call)
    yield from continue_sweep(state, thread_id, left)
    return as_dict(row) if status else None
