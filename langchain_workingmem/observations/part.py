"""What observations do in a turn: the log stands for the messages that it covers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.state import Part, Recent
from langchain_workingmem.derived import (
    NEWEST,
    Head,
    Ranges,
    Rows,
    ThreadRows,
    learn,
    read_threads,
    thread_commands,
)
from langchain_workingmem.observations.log import KIND, ObservationLog, lines_of, log_block, tokens_of
from langchain_workingmem.observations.observer import Observer, Pending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.observations.options import ObservationOptions
    from langchain_workingmem.turn.assemble import Turn


_log = logging.getLogger("langchain_workingmem")


@dataclass(slots=True)
class _Logs:
    """What this process has read: the other threads of users that have a log, and the logs, which turns show again and again."""

    threads: Recent[str, list[str]] = field(default_factory=Recent)
    logs: Recent[tuple[str, str], tuple[object, ObservationLog]] = field(default_factory=lambda: Recent(256))
    told: Recent[str, bool] = field(default_factory=Recent)  # threads of which the log says that messages are left out


class Observing(Part):
    """The part of a turn that shows the log."""

    follows, covers = True, KIND

    def __init__(self, options: ObservationOptions) -> None:
        self.options = options

    def commands(self, state: MemoryState, thread_id: str, user_id: str) -> list[Command]:
        """Read the log of the thread, and with scope "user" which other threads of the user have one, and theirs."""
        command = ThreadRows(state, thread_id, user_id, KIND).show()
        if self.options.scope == "thread":
            return [command]
        other_ids = [id for id in state.local(_Logs).threads.get(user_id) or () if id != thread_id]
        return [command, *thread_commands(state, user_id, KIND, other_ids)]

    def _is_of_user(self, turn: Turn) -> bool:
        return self.options.scope == "user" and not turn.is_private

    def _read(
        self, state: MemoryState, turn: Turn, commands: Sequence[Any], replies: list[Any]
    ) -> Plan[dict[str, Rows]]:
        """Return the rows by thread, that of the turn first."""
        thread_id, user_id = turn.thread_id, turn.user_id
        own_rows = learn(commands[0], replies[0])
        if not self._is_of_user(turn):
            return {thread_id: own_rows}

        def choose(ids: list[str]) -> list[str]:
            other_ids = [id for id in ids if id != thread_id][:NEWEST]
            state.local(_Logs).threads.put(user_id, other_ids)
            return other_ids

        other_rows = yield from read_threads(state, user_id, KIND, commands[1:], replies[1:], choose)
        return {thread_id: own_rows, **other_rows}

    def gathered(self, state: MemoryState, turn: Turn, asked: Sequence[Command], replies: list[Any]) -> Plan[bool]:
        """Take the log into the turn. Two more round trips where a list has left messages of it, one in a user's first turn of a process."""
        by_thread = yield from self._read(state, turn, asked, replies)
        own_rows = yield from _on_branch(state, turn, by_thread[turn.thread_id])
        is_other = turn.rows_revision not in (None, own_rows.revision)
        if is_other:  # the history has to fit to these rows
            turn.head.pop("uncovered")
            turn.head["without"] = [[*pair] for pair in own_rows.covered.pairs]
        tokens = sum(facts.tokens for facts in turn.shown)
        self._show(state, turn, {**by_thread, turn.thread_id: own_rows}, tokens)
        return is_other

    def _show(self, state: MemoryState, turn: Turn, by_thread: Mapping[str, Rows], tokens: int) -> None:
        turn.covered = by_thread[turn.thread_id].covered
        turn.limit = self.options.limit if tokens > self.options.limit else None
        turn.parts["observations"] = log_of(state, turn.user_id, by_thread, tokens, of_user=self._is_of_user(turn))

    def renewed(self, state: MemoryState, turn: Turn, *, waits: bool) -> Plan[None]:
        """Read the log again in the run of an agent; wait for the observer, where the prompt would be too long.

        One round trip; in a process that does not observe, two more once a thread.
        """
        thread_id, user_id, options = turn.thread_id, turn.user_id, self.options
        pending = state.local(Pending).tokens
        tokens = pending.get(thread_id)
        if waits and options.background and (tokens is None or tokens > options.limit):
            yield from Observer(state, options, thread_id, user_id).wait()
            yield from Observer(state, options, thread_id, user_id).start()
            tokens = pending.get(thread_id)
        if tokens is None:  # nobody in this process observes the thread; from now on its writes are counted
            tokens = yield from Observer(state, options, thread_id, user_id).look()
        commands = self.commands(state, thread_id, user_id)
        by_thread = yield from self._read(state, turn, commands, (yield from send(*commands)))
        own_rows = yield from _on_branch(state, turn, by_thread[thread_id])
        self._show(state, turn, {**by_thread, thread_id: own_rows}, tokens)

    def overflowed(self, state: MemoryState, turn: Turn) -> Plan[bool]:
        """Observe all that can be, for at most `timeout`; tell whether the log has changed."""
        before = turn.parts["observations"].revision  # of the prompt that was too long
        observer = Observer(state, self.options, turn.thread_id, turn.user_id)
        observer.until = monotonic() + self.options.timeout.total_seconds()
        yield from observer.run(now=True)
        yield from self.renewed(state, turn, waits=False)
        return bool(turn.parts["observations"].revision != before)

    def blocks(self, state: MemoryState, turn: Turn, name: str | None) -> list[tuple[str, str]]:
        """Return the block of the log."""
        log: ObservationLog | None = turn.parts.get("observations")
        if turn.limit is not None and not state.local(_Logs).told.get(turn.thread_id):
            state.local(_Logs).told.put(turn.thread_id, value=True)
            _log.warning(
                "thread %r: %d tokens wait for the observer; the oldest messages above block_after=%d are left out",
                turn.thread_id,
                0 if log is None else log.pending_tokens,
                turn.limit,
            )
        if not log:
            return []
        placement = self.options.placement
        if placement is None:
            placements = [part.placement for part in (state.recall, state.working_memory) if part is not None]
            placement = "system" if placements and set(placements) == {"system"} else "question"
        return [("system" if placement == "system" else "first", log_block(log, name, turn.zone))]

    def written(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
        """Let the observer work, if enough messages wait for it."""
        state.local(Pending).add(thread_id, tokens)
        if self.options.background and user_id is not None:
            yield from Observer(state, self.options, thread_id, user_id).start()


def log_of(
    state: MemoryState, user_id: str, by_thread: Mapping[str, Rows], pending: int = 0, *, of_user: bool = False
) -> ObservationLog:
    """Return the log of threads; the same lines as long as nothing changes."""
    key = "" if of_user else next(iter(by_thread))
    fingerprint = tuple((id, rows.revision, *rows.rows) for id, rows in by_thread.items())
    cached = state.local(_Logs).logs.get((user_id, key))
    if cached is None or cached[0] != fingerprint:
        lines = lines_of(by_thread)
        revision = ",".join(rows.revision for rows in by_thread.values())
        log = ObservationLog(observations=lines, tokens=tokens_of(lines), revision=revision, of_user=of_user)
        cached = fingerprint, log
        state.local(_Logs).logs.put((user_id, key), cached)
    return replace(cached[1], pending_tokens=pending)


def _on_branch(state: MemoryState, turn: Turn, rows: Rows) -> Plan[Rows]:
    """Return the rows that cite nothing that a list has left behind, but for what is saved already. One round trip, none without that."""
    if not turn.abandoned or not rows.rows or not turn.followed.changes_branch:
        return rows
    (reply,) = yield from send(("HGET", state.keys.of(turn.thread_id).rows, "heads"))
    abandoned, heads = Ranges.joined((low, high) for low, high in turn.abandoned), Head.read(reply)
    on_branch = [head for id in rows.rows if (head := heads.get(id)) and not head.cites.meets(abandoned)]
    kept_rows = {head.id: rows.rows[head.id] for head in on_branch}
    revision = f"{rows.revision} without some" if len(kept_rows) < len(rows.rows) else rows.revision
    covered = Ranges.joined(pair for head in on_branch for pair in head.covers.pairs)
    return replace(rows, revision=revision, covered=covered, rows=kept_rows)
