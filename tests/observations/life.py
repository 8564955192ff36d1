"""A life: its steps one after the other, and the checks after each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_workingmem import WorkingMemError
from langchain_workingmem._text.said import weight_of
from tests.observations import checks
from tests.observations.checks import ViolationError, require
from tests.observations.observing import Observing
from tests.observations.scripted import LOOSE
from tests.observations.world import USERS, Step


class Life(Observing):
    """Users, their threads, and the memories that serve them."""

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.do(step)
        self.end()

    def do(self, step: Step) -> None:
        """Do a step, wait for what it started, and check."""
        self.done.append(step)
        name, *numbers = step
        is_lazy, is_off = self.config.lazy, self.config.off
        logs = {} if is_off or is_lazy else {thread: self.log(thread) for thread in self.threads}
        try:
            if is_lazy and name in {"forget", "wipe", "foreign", "race", "observe", "expire"}:
                self.settle()  # what these steps expect holds while nothing else happens
            self.act(name, *numbers)
            if not is_lazy or len(self.done) % 4 == 0 or name in {"observe", "both"}:
                self.settle()
                self.check(logs)
            else:
                self.past.append(self.truth)
                self.truth = checks.truth_of(self)
        except WorkingMemError as error:
            raise ViolationError("no step fails", f"{type(error).__name__}: {error}") from error

    def act(self, name: str, *numbers: Any) -> None:
        if name == "model":
            (self.model.part,) = numbers
            self.is_loose = self.is_loose or numbers[0] in LOOSE
            return
        if name == "race":
            self.race(*numbers)
            return
        user, thread, face, *more = numbers
        act: Callable[..., None] = getattr(self, f"do_{name}")
        if self.config.off and name in {"observe", "both", "foreign", "forget", "wipe"}:
            return
        if name not in {"say", "observe", "both", "foreign"}:
            self.change()
        act(user, thread, face, *more)

    def check(self, logs: dict[str, Any]) -> None:
        """Check what has happened since the last check."""
        self.calls = [*self.model.calls]
        self.model.calls.clear()
        self.past.append(self.truth)
        self.truth = checks.truth_of(self)
        checks.check_calls(self)
        good = [call for call in self.calls if call.is_good]
        self.probe_all(good if not self.changed and not self.config.slow else [])
        checks.check_server(self)
        for thread, earlier in logs.items():
            if thread in self.threads and not self.changed:
                self.check_growth(earlier, self.log(thread, 1))
        self.past.clear()
        self.changed = False

    def check_growth(self, earlier: Any, later: Any) -> None:
        """Without a change a log keeps its lines, or is condensed."""
        require(later.revision >= earlier.revision, "revisions rise", (earlier.revision, later.revision))
        for thread, seq in earlier.covered_until.items():
            require(later.covered_until.get(thread, -1) >= seq, "coverage does not go back", (earlier, later))
        if not any(call.kind == "reflect" and call.is_good for call in self.calls):
            # low lines may be left out
            begun = [(one.id, one.text) for one in earlier.observations if one.priority != "low"]
            now = [(one.id, one.text) for one in later.observations]
            kept = [one for one in now if one in begun]
            require(kept == begun, "the lines of a log keep their order", (begun, now))

    def probe_all(self, good: Sequence[Any] = ()) -> None:
        """Look at each thread as its next turn would."""
        for at, (thread, owner) in enumerate(self.threads.items()):
            truth = self.truth[thread]
            face = (at + len(self.done)) % 2
            context = self.faces[face].context("and?", thread_id=thread, user_id=owner, read_only=True)
            checks.check_context(self, context, thread, owner, truth.rows, new=[str(context.messages[-1].id)])
            if self.config.off:
                continue
            log = self.log(thread, face + 1)
            checks.check_log(self, log, thread, owner, is_whole=True)
            got, shown = (
                [(one.id, one.text) for one in some] for some in (log.observations, context.observations.observations)
            )
            differ = [one for one in got if one not in shown], [one for one in shown if one not in got]
            require(got == shown, "a context shows the log that `get` returns", (thread, *differ, got, shown))
            order = [
                (one.said_at, one.positions[0][0], min(seq for _, seq in one.positions)) for one in log.observations
            ]
            require(order == sorted(order), "a log is in the order of what was said", log.observations)
            if log.observations:
                self.check_sources(thread, log.observations[len(self.done) % len(log.observations)], face)
            raw = {message.id for message in context.messages}
            if self.config.scope == "thread" and self.config.max_tokens is None:
                cited = {tuple(source) for one in log.observations for source in one.sources}
                self.check_pending(
                    log,
                    [row.message for row in truth.rows if row.id in raw],
                    [row.message for row in truth.rows if row.place not in cited],
                )
            for call in good:
                if call.kind == "observe" and not self.config.ahead:  # what is read ahead is raw until it is due
                    left = [row.canary for row in truth.rows if row.canary in call.canaries and row.id in raw]
                    copies = any(call.canaries & t.stored for n, t in self.truth.items() if n != thread)
                    require(not left or copies, "a finished call is committed", left)

    def check_pending(self, log: Any, raw: Sequence[BaseMessage], most: Sequence[BaseMessage]) -> None:
        """What is pending is what is shown raw, about; parts of tool traffic that lost the other part are not shown."""
        is_near = weight_of(raw) / 2 - 20 <= log.pending_tokens <= weight_of(most) * 2 + 20
        require(is_near, "what is pending is what is raw", (weight_of(raw), log.pending_tokens, weight_of(most)))

    def check_sources(self, thread: str, one: Any, face: int) -> None:
        found = self.faces[face % 2].observations.sources(one.id, message_range=0, **self.log_ids(thread))
        got = {(row.thread_id, row.message.id): row.message for row in found.rows}
        require(set(got) == {tuple(s) for s in one.sources}, "sources lead to the messages", (one, [*got]))
        for message in got.values():
            require(str(message.content) in self.said, "sources are stored messages", message)

    def end(self) -> None:
        """Delete the users one after the other; nothing of them is left."""
        self.settle()
        for user in range(len(USERS)):
            self.do_gone(user, 0, user, 0, 0)
            self.truth = checks.truth_of(self)
            checks.check_server(self)
        left = [key for key in checks.everything(self.raw, f"{self.prefix}:*") if b"observ" in key]
        require(not left, "delete_user leaves no log", left)
