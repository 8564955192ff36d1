"""What observations do in a turn: the log stands for the messages that it covers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.rooms import Part
from langchain_workingmem._redis.state import Recent
from langchain_workingmem.derived import Ranges, Shown, known_rows, learn, show_command, threads_command, threads_in
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.observations.log import KIND, ObservationLog, lines_of, log_block, tokens_of
from langchain_workingmem.observations.observer import Observer, Pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.observations.options import ObservationOptions
    from langchain_workingmem.turn import Gathered


@dataclass(slots=True)
class _Users:
    """Threads of users that have a log, as this process has read them last; and the lines of logs, which turns show again and again."""

    threads: Recent[str, list[str]] = field(default_factory=Recent)
    logs: Recent[tuple[str, str], tuple[object, ObservationLog]] = field(default_factory=lambda: Recent(256))


class Observing(Part):
    """The part of a turn that shows the log."""

    follows = True

    def __init__(self, options: ObservationOptions) -> None:
        self.options = options

    def narrow(self, head: dict[str, Any]) -> None:
        """Leave out of the history what the log covers."""
        head["uncovered"] = KIND

    def commands(self, state: MemoryState, thread_id: str, user_id: str) -> list[Command]:
        """Read the log of the thread, and with scope "user" which other threads of the user have one, and theirs."""
        own = show_command(state, thread_id, user_id, KIND)
        if self.options.scope == "thread":
            return [own]
        known = [id for id in state.room(_Users).threads.get(user_id) or () if id != thread_id]
        return [own, threads_command(state, user_id), *(show_command(state, id, user_id, KIND) for id in known)]

    def gathered(
        self,
        state: MemoryState,
        found: Gathered,
        head: dict[str, Any],
        reply: dict[str, Any],
        asked: Sequence[Command],
        replies: list[Any],
    ) -> Plan[bool]:
        """Take the log into the turn. One more round trip where a list has left messages of it, or in a user's first turn of a process."""
        thread_id, user_id = found.thread_id, found.user_id
        shown = {thread_id: learn(state, thread_id, user_id, KIND, replies[0])}
        if self.options.scope == "user":
            shown |= yield from self._of_user(state, thread_id, user_id, asked, replies)
        is_other: bool = reply.get("rows_revision", shown[thread_id].revision) != shown[thread_id].revision
        if found.gone and shown[thread_id].rows and found.followed.changes_branch:
            left = yield from _without(state, thread_id, shown[thread_id], found.gone)
            is_other, shown[thread_id] = True, left
            head.pop("uncovered")
            head["without"] = [[*pair] for pair in left.covered]
        tokens = sum(int(facts.split(":", 3)[2]) for facts in reply.get("shown") or ())
        state.room(Pending).tokens.put(thread_id, tokens)
        self._show(state, found, shown)
        return is_other

    def _of_user(
        self, state: MemoryState, thread_id: str, user_id: str, asked: Sequence[Command], replies: list[Any]
    ) -> Plan[dict[str, Shown]]:
        """Return the logs of the other threads of a user."""
        ids = [id for id, is_there in threads_in(replies[1]).items() if is_there and id != thread_id]
        state.room(_Users).threads.put(user_id, ids)
        read = {
            state.keys.thread_of(str(call[3]).encode()): reply
            for call, reply in zip(asked[2:], replies[2:], strict=True)
        }
        if new := [id for id in ids if id not in read]:
            read |= zip(new, (yield from send(*(show_command(state, id, user_id, KIND) for id in new))), strict=True)
        found = {}
        for id in ids:
            try:
                found[id] = learn(state, id, user_id, KIND, read[id])
            except ThreadOwnershipError:  # given to another user
                continue
        return found

    def _show(self, state: MemoryState, found: Gathered, shown: Mapping[str, Shown]) -> None:
        found.covered = shown[found.thread_id].covered
        tokens = state.room(Pending).tokens.get(found.thread_id) or 0
        found.limit = self.options.limit if tokens > self.options.limit else None
        found.parts["observations"] = log_of(state, found.user_id, shown, tokens, of_user=self.options.scope == "user")

    def renewed(self, state: MemoryState, found: Gathered, *, waits: bool) -> Plan[None]:
        """Read the log again in the run of an agent; wait for the observer, where the prompt would be too long. One round trip."""
        thread_id, user_id, options = found.thread_id, found.user_id, self.options
        tokens = state.room(Pending).tokens.get(thread_id)
        if waits and options.background and (tokens is None or tokens > options.limit):
            yield from Observer(state, options, thread_id, user_id).wait()
            yield from Observer(state, options, thread_id, user_id).start()
        asked = self.commands(state, thread_id, user_id)
        replies = yield from send(*asked)
        shown = {thread_id: learn(state, thread_id, user_id, KIND, replies[0])}
        if options.scope == "user":
            shown |= yield from self._of_user(state, thread_id, user_id, asked, replies)
        self._show(state, found, shown)

    def overflowed(self, state: MemoryState, found: Gathered) -> Plan[bool]:
        """Observe all that can be; tell whether the log has changed."""
        before = known_rows(state, found.thread_id, KIND).revision
        yield from Observer(state, self.options, found.thread_id, found.user_id).run(now=True)
        yield from self.renewed(state, found, waits=False)
        return known_rows(state, found.thread_id, KIND).revision != before

    def blocks(self, state: MemoryState, found: Gathered, name: str | None) -> list[tuple[str, str]]:
        """Return the block of the log."""
        log: ObservationLog | None = found.parts.get("observations")
        if not log:
            return []
        placement = self.options.placement
        if placement is None:
            others = [one.placement for one in (state.recall, state.working_memory) if one is not None]
            placement = "system" if others and set(others) == {"system"} else "question"
        return [("system" if placement == "system" else "first", log_block(log, name, found.zone))]

    def written(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
        """Let the observer work, if enough messages wait for it."""
        state.room(Pending).add(thread_id, tokens)
        if self.options.background and user_id is not None:
            yield from Observer(state, self.options, thread_id, user_id).start()


def log_of(
    state: MemoryState, user_id: str, shown: Mapping[str, Shown], pending: int = 0, *, of_user: bool = False
) -> ObservationLog:
    """Return the log of threads; the same lines as long as nothing changes."""
    key = "" if of_user else next(iter(shown))
    state_of = tuple((id, rows.revision, len(rows.rows)) for id, rows in shown.items())
    before = state.room(_Users).logs.get((user_id, key))
    if before is None or before[0] != state_of:
        lines = lines_of(shown)
        revision = ",".join(rows.revision for rows in shown.values())
        made = ObservationLog(observations=lines, tokens=tokens_of(lines), revision=revision, of_user=of_user)
        before = state_of, made
        state.room(_Users).logs.put((user_id, key), before)
    return replace(before[1], pending_tokens=pending)


def _without(state: MemoryState, thread_id: str, shown: Shown, gone: Sequence[Sequence[int]]) -> Plan[Shown]:
    """Return the rows that cite nothing that a list has left behind. One round trip."""
    rows = state.keys.of(thread_id).rows
    (stored,) = yield from send(("HMGET", rows, *(f"r:{id}" for id in shown.rows)))
    left, covered = dict[int, dict[str, Any]](), list[tuple[int, int]]()
    for (id, body), text in zip(shown.rows.items(), stored, strict=True):
        if text is None:
            continue
        head = orjson.loads(text)
        cites = Ranges.read(head["cites"])
        if not any(low <= last and first <= high for low, high in cites for first, last in gone):
            left[id] = body
            covered += Ranges.read(head["covers"])
    return Shown(f"{shown.revision}-", Ranges(tuple(sorted(covered))), left)
