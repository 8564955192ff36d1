"""Steps of a life that change conversations: turns, branches, deletions, threads that move."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from tests.helpers.archives import unsealed
from tests.observations import checks
from tests.observations.checks import require
from tests.observations.world import USERS, World, id_of


class Talking(World):
    """Does what programs and people do with a memory that observes or not."""

    def do_say(self, user: int, thread: int, face: int, kind: int, size: int) -> None:
        name, ids = self.place(user, thread)
        memory = self.faces[face]
        rows = self.rows(name)
        canary, text = self.words(size)
        question = HumanMessage(text, id=id_of(canary))
        form = kind % 5
        given: Any = [question]
        if form == 1:
            given = text
        elif form == 2:
            given = [*(row.message.model_copy() for row in rows), question]
        quick = not self.config.recall and not self.config.ttl and not self.config.lazy
        with self.hot(face, 1 if quick else None):
            context = memory.context(given, **ids)
        asked = context.messages[-1]
        if face < 2 and not self.racing:
            checks.check_context(self, context, name, ids["user_id"], rows, new=[str(asked.id)])
            self.check_prefix(name, context)
        answer = self.answer((0, 0, 1, 2)[kind // 5 % 4], size)
        saved: dict[int, list[BaseMessage]] = {
            1: [HumanMessage(text), *answer],
            2: [*given, *answer] if form == 2 else [],
            3: [*context.messages, *answer],
        }
        later = face < 2 and (self.config.background or self.config.scope == "user")  # in the background
        with self.hot(face, None if later or not quick else 1):
            memory.save_turn(saved.get(form, [question, *answer]), **ids)
        self.threads.setdefault(name, ids["user_id"])
        if self.racing:
            return
        stored = {row.canary for row in self.rows(name)}
        lost = {row.canary for row in rows} - stored
        require(not lost, "a turn that contradicts nothing leaves every message", (form, lost))
        wanted = {checks.canary_of(message) for message in [question, *answer]}
        require(wanted <= stored, "a turn is stored", wanted - stored)

    def check_prefix(self, thread: str, context: Any) -> None:
        """A context begins with the whole one of the turn before, up to its question."""
        shown = [repr((m.type, m.content, getattr(m, "tool_calls", None))) for m in context.messages]
        revision = 0 if self.config.off else context.observations.revision
        known = self.turns.get(thread)
        if known is not None and known[0] == revision and self.config.max_tokens is None:
            begun = known[1]
            require(
                shown[: len(begun)] == begun,
                "a context begins with the one before",
                next(((a, b) for a, b in zip(begun, [*shown, ""], strict=False) if a != b), None),
            )
        self.turns[thread] = (revision, shown[:-1])

    def do_append(self, user: int, thread: int, face: int, kind: int, size: int) -> None:
        name, ids = self.place(user, thread)
        canary, text = self.words(size, program=True)
        self.faces[face].history.append([(HumanMessage, AIMessage)[kind % 2](text, id=id_of(canary))], **ids)
        self.threads.setdefault(name, ids["user_id"])

    def branch(self, user: int, thread: int, face: int, which: int, size: int, *, edits: bool) -> None:
        """Answer the question again, or ask another one at its place, as a client that sends the whole conversation."""
        name, ids = self.place(user, thread)
        rows = self.rows(name)
        asked = [at for at, row in enumerate(rows) if row.message.type == "human" and row.canary not in self.notes]
        if not asked:
            return
        at = asked[which % len(asked)] if edits else asked[-1]
        if at == 0:  # a list of one message is a new question
            return
        if edits:
            canary, text = self.words(size)
            question: BaseMessage = HumanMessage(text, id=id_of(canary))
        else:
            question = rows[at].message.model_copy()
        given = [*(row.message.model_copy() for row in rows[:at]), question]
        memory = self.faces[face]
        context = memory.context(given, **ids)
        if face < 2 and not self.racing:
            notes = {row.canary for row in rows if row.canary in self.notes}
            owner, new = ids["user_id"], [str(question.id)]
            checks.check_context(self, context, name, owner, rows[:at], may_name=notes, new=new)
        answer = self.answer(which % 2, size)
        memory.save_turn([question, *answer] if which % 3 else [*given, *answer], **ids)

    def do_edit(self, user: int, thread: int, face: int, which: int, size: int) -> None:
        self.branch(user, thread, face, which, size, edits=True)

    def do_regenerate(self, user: int, thread: int, face: int, which: int, size: int) -> None:
        self.branch(user, thread, face, which, size, edits=False)

    def some(self, user: int, thread: int, which: int) -> tuple[Any, dict[str, str], list[Any]]:
        """Choose a message of a thread; old ones more often, which may be observed."""
        name, ids = self.place(user, thread)
        rows = self.rows(name)
        return (rows[which % max(1, (2 * len(rows)) // 3)] if rows else None), ids, rows

    def do_update(self, user: int, thread: int, face: int, which: int, size: int) -> None:
        row, ids, _ = self.some(user, thread, which)
        if row is None or row.message.type == "tool" or getattr(row.message, "tool_calls", None):
            return
        text = self.words(size, program=row.canary in self.notes)[1]
        changed = row.message.model_copy(update={"content": text})
        history = self.faces[face].history
        (history.update if size % 3 else history.append)([changed], **ids)

    def do_truncate(self, user: int, thread: int, face: int, which: int, _: int) -> None:
        name, ids = self.place(user, thread)
        if rows := self.rows(name):
            row = rows[-1 - which % min(6, len(rows))]
            self.faces[face].history.truncate(name, after=row.id, user_id=ids["user_id"])

    def do_delete(self, user: int, thread: int, face: int, which: int, size: int) -> None:
        row, ids, rows = self.some(user, thread, which)
        if row is not None:
            at = rows.index(row)
            self.faces[face].history.delete([one.id for one in rows[at : at + 1 + size % 3]], **ids)

    def do_clear(self, user: int, thread: int, face: int, _: int, __: int) -> None:
        name, _ids = self.place(user, thread)
        if name in self.threads:
            self.faces[face].history.clear(name)

    def do_delete_thread(self, user: int, thread: int, face: int, _: int, __: int) -> None:
        name, ids = self.place(user, thread)
        if self.threads.pop(name, None):
            self.faces[face].threads.delete(name, user_id=ids["user_id"])

    def do_clone(self, user: int, thread: int, face: int, which: int, size: int) -> None:
        name, ids = self.place(user, thread)
        new = f"clone{size % 3}"
        if name in self.threads and new not in self.threads:
            last = {"last_messages": 1 + which % 9} if which % 2 else {}
            texts = self.texts(name)
            self.faces[face].threads.clone(name, new_thread_id=new, **last)
            self.threads[new] = ids["user_id"]
            corrected = {row.canary for row in self.rows(name) if row.place in self.forgiven}
            for row in self.rows(new):  # a message of the copy is a message of its own
                if row.canary in corrected:  # what a person deleted from the log stays deleted in the copy
                    self.forgiven.add(row.place)
                self.payable[row.canary] += 1
                self.copies[row.canary] += 1
            if not last and self.config.scope == "thread" and not self.racing:
                require(self.texts(new) == texts, "a clone has the log of its source", (texts, self.texts(new)))

    def do_transfer(self, user: int, thread: int, face: int, _: int, __: int) -> None:
        name, ids = self.place(user, thread)
        if name in self.threads:
            other, texts = USERS[1 - USERS.index(ids["user_id"])], self.texts(name)
            self.faces[face].threads.transfer(name, user_id=ids["user_id"], to=other)
            self.threads[name] = other
            if self.config.scope == "thread" and not self.racing:
                require(self.texts(name) == texts, "a thread keeps its log", (texts, self.texts(name)))

    def texts(self, thread: str) -> list[str]:
        """Return what the log of a thread says, while nothing else happens."""
        return [] if self.config.off or self.racing or self.config.lazy else [one.text for one in self.log(thread)]

    def do_gone(self, user: int, _: int, face: int, __: int, ___: int) -> None:
        owner = USERS[user]
        self.threads = {name: of for name, of in self.threads.items() if of != owner}
        report = self.faces[face].users.delete(owner)
        require(report.verified or self.racing, "a deletion is verified", report)

    def do_move(self, user: int, _: int, face: int, which: int, __: int) -> None:
        """Export a user, delete everything, and import it again; sometimes only import what is there already."""
        owner = USERS[user]
        logs = {thread: self.texts(thread) for thread, of in self.threads.items() if of == owner}
        records = unsealed(self.faces[face].users.export(owner))
        if which % 4:
            before, self.threads = self.threads, {name: of for name, of in self.threads.items() if of != owner}
            self.faces[face].users.delete(owner)
            if not self.racing:
                self.truth = checks.truth_of(self)
                checks.check_server(self)
            self.threads = before
        self.faces[which % 3].users.load(records, user_id=owner)
        for thread, texts in logs.items() if not self.racing else ():
            require(self.texts(thread) == texts, "an import brings the log back", (texts, self.texts(thread)))

    def do_expire(self, user: int, thread: int, _: int, __: int, ___: int) -> None:
        """Let all keys of a thread expire at once, as the server does.

        The log of a user, in another slot, knows the time at which a thread expires, and this comes before it.
        """
        name, _ids = self.place(user, thread)
        if name not in self.threads:
            return
        keys = [key for key in self.raw.scan_iter(f"{self.prefix}:*", count=1000) if f"{{{name}}}".encode() in key]
        times = {key: self.raw.pexpiretime(key) for key in keys if b":vector:" not in key and b":trash:" not in key}
        require(len(set(times.values())) <= 1 and -1 not in times.values(), "keys of a thread expire together", times)
        if self.config.scope == "thread":
            del self.threads[name]
            for key in keys:
                self.raw.delete(key)
