"""Steps of a life that observe, and what people do with a log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from langchain_workingmem import ThreadOwnershipError, WorkingMemError
from tests.observations.checks import require
from tests.observations.scripted import Gate
from tests.observations.talking import Talking
from tests.observations.world import KEEP_TOKENS, USERS


class Observing(Talking):
    """Observes, alone, twice at once and while something changes; corrects a log."""

    def act(self, name: str, *numbers: Any) -> None:
        raise NotImplementedError

    def do_observe(self, user: int, thread: int, face: int, _: int, __: int) -> None:
        name, ids = self.place(user, thread)
        if name in self.threads:
            before, failed = self.log(name), False
            try:
                self.faces[face % 2].observations.observe(name, user_id=ids["user_id"])
            except WorkingMemError:
                failed = True
            self.calls = [*self.model.calls]
            bad = [call for call in self.calls if not call.is_good]
            require(bad or not failed or self.config.slow, "observing with a good model does not fail")
            if not self.config.background and not self.config.slow:
                self.check_observed(name, before, bad)

    def check_observed(self, thread: str, before: Any, bad: Sequence[Any]) -> None:
        after = self.log(thread)
        if self.calls and len(bad) == len(self.calls):
            require(
                [*after.observations] == [*before.observations] and after.revision == before.revision,
                "a bad answer changes nothing",
                (before, after),
            )
            require(after.covered_until == before.covered_until, "a bad answer covers nothing", (before, after))
            most = max(sum(call.kind == kind for call in bad) for kind in ("observe", "reflect"))
            require(most <= 4, "a bad answer is asked for again at most three times", [call.part for call in bad])
        failures = after.usage.failures - before.usage.failures
        require((failures > 0) == bool(bad) and failures <= len(bad), "failures are counted", (failures, bad))
        require(bool(after.usage.last_error) or not bad, "the last error is kept", after.usage)
        if not bad:
            self.check_done(thread, after)

    def check_done(self, thread: str, log: Any) -> None:
        """Nothing above keep_tokens is left, but for the last turn and for what does not fit."""
        rows = self.rows(thread)
        cited = {tuple(source) for one in log.observations for source in one.sources}
        done = self.model.faded
        open_ = [row for row in rows if row.place not in cited | self.forgiven and row.canary not in done]
        asked = [at for at, row in enumerate(rows) if row.message.type == "human"]
        last = rows[asked[-1] :] if asked else rows
        earlier = [row for row in open_ if row.seq < (last[0].seq if last else 0)]
        sizes = [len(f"{row.message.text}{getattr(row.message, 'tool_calls', '')}") // 4 + 8 for row in earlier]
        if not self.is_loose and not self.racing:
            require(
                sum(sizes) <= KEEP_TOKENS + max([0, *sizes]) * 3 + 60,
                "observe leaves nothing above keep_tokens",
                ([(row.place, size) for row, size in zip(earlier, sizes, strict=True)], log.usage),
            )

    def do_both(self, user: int, thread: int, _: int, __: int, ___: int) -> None:
        """Two memories observe the same at once."""
        name, ids = self.place(user, thread)
        if name not in self.threads:
            return

        def observe() -> None:
            with suppress(WorkingMemError):
                self._sync.observations.observe(name, user_id=ids["user_id"])

        other = threading.Thread(target=observe)
        other.start()
        try:
            with suppress(WorkingMemError):
                self.faces[1].observations.observe(name, user_id=ids["user_id"])
        finally:
            other.join()

    def race(self, user: int, thread: int, face: int, a: int, b: int, within: str, *numbers: int) -> None:
        """Change something while a call of the observer is on its way."""
        name, ids = self.place(user, thread)
        if self.config.off or name not in self.threads:
            self.act(within, user, thread, *numbers)
            return
        gate = self.model.gate = Gate()
        over = threading.Event()

        def observe() -> None:
            try:
                with suppress(WorkingMemError):
                    if face % 2:
                        self._sync.observations.observe(name, user_id=ids["user_id"])
                    else:
                        asyncio.run(self._once(name, ids["user_id"]))
            finally:
                over.set()
                gate.entered.set()

        other = threading.Thread(target=observe)
        other.start()
        gate.entered.wait(10)
        self.model.gate = None
        self.racing = True
        try:
            self.act(within, user, thread, *numbers)
            self.change()
        finally:
            self.racing = False
            gate.released.set()
            over.wait(20)
            other.join()

    async def _once(self, thread: str, owner: str) -> None:
        await self._async.observations.aobserve(thread, user_id=owner)

    def observation(self, user: int, thread: int, which: int) -> tuple[str, Any]:
        name, _ = self.place(user, thread)
        seen = self.log(name).observations if name in self.threads else []
        return name, (seen[which % len(seen)] if seen else None)

    def do_forget(self, user: int, thread: int, face: int, which: int, _: int) -> None:
        name, one = self.observation(user, thread, which)
        if one is None:
            return
        self.forgiven |= {tuple(source) for source in one.sources}
        self.faces[face % 2].observations.delete(one.id, **self.log_ids(name))
        if not self.racing:
            require(
                one.id not in {other.id for other in self.log(name).observations}, "what a person deletes is gone", one
            )

    def do_wipe(self, user: int, thread: int, face: int, _: int, __: int) -> None:
        name, _ids = self.place(user, thread)
        if name in self.threads:
            self.faces[face % 2].observations.clear(**self.log_ids(name))
            if not self.racing:
                require(not self.log(name).observations, "a cleared log is empty")

    def do_foreign(self, user: int, thread: int, face: int, which: int, _: int) -> None:
        """Another user gets nothing of a thread."""
        name, one = self.observation(user, thread, which)
        if name not in self.threads:
            return
        other = "eve" if which % 2 else USERS[1 - user % 2]
        part: Any = self.faces[face % 2].observations
        id = one.id if one is not None else "1"
        ids = {"thread_id": name, "user_id": other}
        calls: list[Callable[[], Any]] = [lambda: part.observe(name, user_id=other)]
        if self.config.scope == "thread":
            calls += [
                lambda: part.get(**ids),
                lambda: part.sources(id, **ids),
                lambda: part.delete(id, **ids),
                lambda: part.clear(**ids),
            ]
        for at, call in enumerate(calls):
            try:
                call()
                met = "nothing was raised"
            except ThreadOwnershipError:
                continue
            except WorkingMemError as error:
                met = repr(error)
            require(False, "a foreign user gets ThreadOwnershipError", (at, met))
