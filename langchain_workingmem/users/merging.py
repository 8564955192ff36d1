"""The plan that merges a resource into another one: all that it has becomes the other one's, until no key names it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._counting import count_command
from langchain_workingmem._documents.joining import joined
from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis import rooms
from langchain_workingmem._redis.access import refused_by, sweep
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import check_id, merge_mark, values_key
from langchain_workingmem.errors import (
    IdError,
    RedisConnectionError,
    ResourceDeletedError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
    WorkingMemoryConflictError,
)
from langchain_workingmem.options import Ids, WorkingMemoryOptions
from langchain_workingmem.recall import Authors
from langchain_workingmem.reports import MergeReport
from langchain_workingmem.threads import transfer
from langchain_workingmem.users import store_items
from langchain_workingmem.users.operations import CLAIM, Leaving
from langchain_workingmem.users.sections import paths_of
from langchain_workingmem.working_memory import (
    ATTEMPTS,
    ScopeKey,
    as_seen,
    check_document,
    pause_after,
    reader_of,
    write_revision_into,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.users.sections import Namespace


def merge(
    state: MemoryState, source: str, into: str, merge_id: str, namespaces: Iterable[Sequence[str]] = ()
) -> Plan[MergeReport]:
    """Give all that a resource has to another one, then look through all keys for what still names it.

    Working memory goes first, because its values stand on messages: a message that is deleted meanwhile is forgotten in both
    memories, and then a thread takes its values along to the new owner. The tombstone names the new owner; each step can be
    repeated, so an interrupted merge continues with the next call.
    """
    if check_id(source, "source") == check_id(into, "into"):
        raise IdError(f"into is the resource {source!r} itself", remedy="pass the user whom it becomes")
    templates = tuple(namespaces)
    paths, new_paths = (paths_of(templates, one) for one in (source, into))
    store_items.check_paths(new_paths)
    if state.working_memory is None:  # the stored one is merged all the same
        state = copy(state)
        state.working_memory = WorkingMemoryOptions(template="")
    this = _Merge(state, source, paths, merge_mark(into) + merge_id, into, new_paths)
    verified = yield from this.leave(this.take_memory, this.take_listed)
    state.room(Authors).pop(into)
    del this.counts["vectors"]
    more: dict[str, Any] = {**this.counts, "items_left": this.items_left, "files_renamed": this.files_renamed}
    return MergeReport(source=source, into=into, verified=verified, **more)


@dataclass(slots=True)
class _Merge(Leaving):
    into: str
    new_paths: Sequence[Namespace]
    items_left: list[dict[str, Any]] = field(default_factory=list)
    files_renamed: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> str:
        return (
            f"the merge of resource {self.resource_id!r} into {self.into!r} is not finished, and writes for it may be refused until "
            "it is: call users.merge() again with the same two"
        )

    def begin(self) -> Plan[bool]:
        tombstone, *_ = self.state.keys.of_resource(self.resource_id)
        mine = merge_mark(self.into)
        claim = CLAIM.call([tombstone], mine, self.token[len(mine) :])
        earlier, other = yield from send(claim, self._tombstone_of_new_owner(), in_order=True)
        if earlier is not None and not earlier.startswith(mine.encode()):
            raise refused_by(earlier.decode(errors="replace"), self.resource_id)
        self._check(other)
        return earlier is None

    def may_lift(self, error: WorkingMemError, *, is_first: bool) -> bool:
        # while one of the two is being deleted, the other goes on with what it has
        is_whole = is_first and not isinstance(error, RedisConnectionError) and not self.counts.total()
        return isinstance(error, ResourceDeletedError) or is_whole

    def _tombstone_of_new_owner(self) -> tuple[str, str]:
        return "GET", self.state.keys.of_resource(self.into)[0]

    def _check(self, tombstone: bytes | None) -> None:
        if tombstone is not None:
            raise refused_by(tombstone.decode(errors="replace"), self.into)

    def take_threads(self, ids: Sequence[str]) -> Plan[None]:
        left = []
        for id in ids:
            try:
                thread = yield from transfer(self.state, id, self.resource_id, self.into, merge_mark(self.into))
            except (ThreadOwnershipError, ThreadNotFoundError):
                left.append(id)  # its vectors may still name the former owner
            else:
                self.counts.update(threads=1, messages=thread.message_count)
        yield from sweep(self.state, *left)

    def take_memory(self) -> Plan[None]:
        """Merge the working memories; `WorkingMemoryValidationError` if the result may not be. Four round trips; with values eight."""
        state, where = (
            self.state,
            ScopeKey(self.state.keys.of_resource(self.into), None, self.into, Ids(None, self.into)),
        )
        _, memory, revisions = state.keys.of_resource(self.resource_id)
        usage = state.keys.usage_of_resource(self.resource_id)[1]
        read = reader_of(state, where)
        for attempt in range(1, ATTEMPTS + 1):
            rows = yield from send(
                ("HGETALL", memory), ("HGETALL", where.key), ("EXISTS", values_key(memory)), ("HGETALL", usage)
            )
            guest, user, has_values = as_dict(rows[0]), as_dict(rows[1]), rows[2]
            document = guest.get(b"document", b"").decode()
            if has_values or (document and (state.keeps or b"kept" in user)):
                self.counts["values"] += yield from rooms.load_keeping().merged_into(state, self.resource_id, self.into)
                break
            if not document:
                break
            before = read(user)
            form = state.remembering.format_for(before.template)
            after = check_document(state, joined(form, before.text, document))
            other = "" if after == document else document
            status, _ = yield from write_revision_into(state, where, as_seen(user), "merge", "write", after, other)
            if status:
                break
            if attempt % 2 == 0:
                yield pause_after(attempt)
        else:
            raise WorkingMemoryConflictError(expected=before.revision, actual=before.revision)
        self.counts["working_memories"] += int(bool(document))
        taken = [part for pair in as_dict(rows[3]).items() for part in pair]
        counting = [count_command(state, self.into, taken)] if taken else []
        yield from send(*counting, ("DEL", memory, revisions, values_key(memory), usage), at_most_once=bool(taken))

    def take_room(self, name: str) -> Plan[None]:
        told = yield from rooms.load(name).merged_into(self.state, self.resource_id, self.into)
        for field_name, value in told.items():
            if isinstance(value, int):
                self.counts[field_name] += value
            else:
                self.files_renamed |= value

    def take_items(self, digests: Sequence[str]) -> Plan[None]:
        paths = [*zip(self.paths, self.new_paths, strict=True)]
        for digest in digests:
            found = yield from store_items.move(self.state, paths, digest, self._tombstone_of_new_owner())
            if found is not None:
                left, tombstone = found
                self._check(tombstone)
                self.items_left += left
                self.counts["items"] += not left
