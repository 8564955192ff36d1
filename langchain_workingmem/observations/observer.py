"""The worker of a thread's log: it lets the observer read the oldest messages, the reflector the oldest lines, and writes what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, cast

from langchain_workingmem._engine.plan import Plan, Sleep
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.unicode import count_tokens
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.derived import NewRow
from langchain_workingmem.observations.answers import MOST_CITED, Line, Lines, read_lines
from langchain_workingmem.observations.log import KIND, Observation, body_of, lines_of, tokens_of
from langchain_workingmem.observations.prompts import notes, observer_rules, reflector_rules
from langchain_workingmem.observations.worker import (
    WAIT,
    BadAnswer,
    Unread,
    Worker,
    elements,
    read_batch,
    read_messages,
    read_unread,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations.options import ObservationOptions

MOST_CONDENSED = 500  # messages that a condensed line stands for: a deletion makes so many raw again at most
MOST_READ = 150  # messages of one call
TOKENS_OF_HEAD = 3  # of a line: sign and time


@dataclass(slots=True)
class Pending:
    """What this process knows of how much the observer has to read."""

    tokens: Recent[str, int] = field(default_factory=Recent)  # of messages without lines, by thread
    due: Recent[str, int] = field(default_factory=Recent)  # from how many on there is something to do

    def add(self, thread_id: str, tokens: int) -> None:
        """Note that messages of so many tokens were written; of a thread that is not known nothing is noted."""
        self.tokens.change(thread_id, lambda before: None if before is None else before + tokens)


def due_from(options: ObservationOptions, tokens: int, unread: int) -> int:
    """Return from how many tokens on a worker is started again: for a full batch, never before half of `message_tokens`."""
    full_batch = tokens + max(1, options.keep_tokens + options.batch_tokens - unread)
    return min(options.message_tokens, max(options.message_tokens // 2, full_batch))


class Observer(Worker):
    """The observer and the reflector of one thread."""

    kind, name, title = KIND, "observe", "the observer"

    def __init__(self, state: MemoryState, options: ObservationOptions, thread_id: str, user_id: str) -> None:
        super().__init__(state, thread_id, user_id, options.timeout.total_seconds())
        self.options = options
        self.stops_at_limit = False  # somebody waits for the prompt

    def start(self) -> Plan[None]:
        """Work in the background, if there is something to do as far as this process knows."""
        pending = self.state.local(Pending)
        tokens, due = pending.tokens.get(self.thread_id), pending.due.get(self.thread_id)
        if tokens is None or tokens >= (due or self.options.message_tokens // 2):
            yield from self.in_background()

    def wait(self) -> Plan[None]:
        """Work, or let another worker work, until few enough messages are left for a prompt: for `seconds`, and not in a pause."""
        self.until = monotonic() + self.seconds
        self.stops_at_limit = True
        while (seconds_left := self.until - monotonic()) > 0:
            self.seconds = seconds_left
            if (yield from self.run_once()):
                return
            yield Sleep(min(WAIT, seconds_left))
            if (yield from self.look()) <= self.options.limit:
                return

    def look(self) -> Plan[int]:
        """Return the tokens of messages without lines. Two round trips."""
        return self._note((yield from read_unread(self.rows)))

    def _note(self, unread: Unread) -> int:
        """Note how much there is to read; return the tokens of messages without lines."""
        tokens, pending = sum(fact.tokens for fact in unread.facts), self.state.local(Pending)
        pending.tokens.put(self.thread_id, tokens)
        unread_tokens = sum(fact.tokens for fact in unread.waiting())
        pending.due.put(self.thread_id, due_from(self.options, tokens, unread_tokens))
        return tokens

    def step(self) -> Plan[bool]:
        """Read one batch, or activate what was read ahead, or condense the log."""
        unread = yield from read_unread(self.rows)
        if self._note(unread) <= self.options.limit and self.stops_at_limit:
            return False
        return (yield from self._observe(unread)) or (yield from self._condense(unread))

    # ------------------------------------------------------------------ messages

    def _observe(self, unread: Unread) -> Plan[bool]:
        """Read one batch, or show what was read ahead; return whether there may be more to do.

        From half of the limit on full batches are read ahead. At the limit they are shown together, so that a cycle changes the beginning
        of the prompt once; only where that is not enough, each further batch is shown at once.
        """
        options, shown = self.options, unread.shown
        tokens, free = sum(fact.tokens for fact in unread.facts), self._free(unread.waiting())
        is_over = self.now or tokens >= options.message_tokens
        if is_over and shown.ahead.pairs:
            yield from self.rows.commit(shown, activate=True)
            return True
        is_full = sum(fact.tokens for fact in free) >= options.batch_tokens and tokens >= options.message_tokens // 2
        if not free or not (is_over or is_full):
            return False
        question_seq = max((fact.seq for fact in unread.facts if fact.digest.startswith("q")), default=-1)
        size = max(1, options.batch_tokens >> shown.failures)  # halved after each failure
        newest = next((fact.seq for fact in reversed(unread.facts) if not fact.digest.startswith("q")), None)
        unseen = None if self.now else newest
        groups = yield from read_batch(
            self.rows, free, shown, tokens=size, most=MOST_READ, running_from=question_seq, unseen=unseen
        )
        if groups is None:
            return True  # the thread has changed meanwhile
        if not groups:
            return False
        new = yield from self._lines(unread, groups)
        written = yield from self.rows.commit(shown, new, activate=is_over)
        return written is None or any(written)

    def pause(self) -> Plan[None]:
        """Show what was read ahead, at the limit."""
        unread = yield from read_unread(self.rows)
        if self._note(unread) >= self.options.message_tokens and unread.shown.ahead.pairs:
            yield from self.rows.commit(unread.shown, activate=True)

    def _lines(self, unread: Unread, groups: Sequence[Sequence[StoredMessage]]) -> Plan[list[NewRow]]:
        """Let the observer read groups; return rows, those that cover something first."""
        rows = [row for group in groups for row in group]
        self.about = f"{rows[0].place} {len(groups)}"  # so that one group that fails twice is given up
        if len(groups) == 1 and unread.shown.failed == self.about:  # it cannot be read at all
            lines, question = [Line(f"[{len(rows)} message(s) that could not be summarized]", "low", (1,))], None
        else:
            question = yield from self._question(unread, rows[0])
            data = elements(rows, self.options.batch_tokens, question, zone=self.zone)
            read = partial(read_lines, len(rows), max(200, count_tokens(data)))
            model, rules = cast("BaseChatModel", self.options.model), observer_rules(self.options.instructions)
            lines = yield from self.ask(model, unread.shown, rules, data, read, Lines)
        return sorted(rows_of(lines, groups, question), key=lambda row: not row.covers)

    def _free(self, facts: Sequence[Facts]) -> list[Facts]:
        """Return what may be read: not the last question with its answer, not the newest messages."""
        start = max((index for index, fact in enumerate(facts) if fact.digest.startswith("q")), default=-1)
        while start > 0 and facts[start - 1].digest.startswith("q"):
            start -= 1
        kept_tokens, end = 0, len(facts)
        while end and (kept_tokens := kept_tokens + facts[end - 1].tokens) <= self.options.keep_tokens:
            end -= 1
        return [fact for index, fact in enumerate(facts[:end]) if start < 0 or index < start or not fact.digest]

    def _question(self, unread: Unread, first: StoredMessage) -> Plan[StoredMessage | None]:
        """Return the question that a batch of tool traffic works on, where it is not read itself."""
        questions = [fact for fact in unread.facts if fact.seq < first.place and fact.digest.startswith("q")]
        if not questions or first.total_tokens:
            return None
        rows = yield from read_messages(self.rows, questions[-1:], unread.shown)
        return rows[0] if rows else None

    # ------------------------------------------------------------------ lines

    def _condense(self, unread: Unread) -> Plan[bool]:
        """Condense the oldest half of a log that is too long; return whether it was written."""
        lines, limit = lines_of({self.thread_id: unread.shown}), self.options.observation_tokens
        if (tokens := tokens_of(lines)) < limit:
            return False
        oldest, size = list[Observation](), 0
        for line in lines[:-1]:
            if size >= tokens / 2:
                break
            oldest.append(line)
            size += tokens_of([line])
        oldest = [line for line in oldest if line.messages < MOST_CONDENSED]
        if len(oldest) < 2:
            return False
        old = tokens_of(oldest)

        def read(answer: BaseMessage, parsed: object) -> list[NewRow]:
            return condensed(oldest, read_lines(len(oldest), old, answer, parsed), old * 3 // 4)

        self.about = ""
        model = cast("BaseChatModel", self.options.reflector or self.options.model)
        rules = reflector_rules(self.options.instructions, old // 2)
        new = yield from self.ask(model, unread.shown, rules, notes(oldest, self.zone), read, Lines)
        written = yield from self.rows.commit(unread.shown, new)
        return written is None or (bool(written) and all(written))


def rows_of(
    lines: Sequence[Line], groups: Sequence[Sequence[StoredMessage]], question: StoredMessage | None = None
) -> list[NewRow]:
    """Return the rows of lines about groups of messages: each group is covered by one line, if possible one that cites it.

    A line may hold words of the `question` that was shown, too, so it cites that.
    """
    rows = [row for group in groups for row in group]
    covers: list[list[StoredMessage]] = [[] for _ in lines]
    number, last = 0, 0
    for group in groups:
        span = range(number + 1, number + len(group) + 1)
        number += len(group)
        last = next((index for index, line in enumerate(lines) if any(source in span for source in line.numbers)), last)
        covers[last] += group
    new_rows = []
    for line, covered in zip(lines, covers, strict=True):
        cited = [rows[source - 1] for source in line.numbers]
        time, ids = to_micros(cited[0].stored_at), [row.message.id or "" for row in cited]
        body = body_of(line.text, time, line.priority, ids[:MOST_CITED], len(covered))
        seqs = [row.place for row in ([question] if question else []) + cited]
        new_rows.append(NewRow(body, seqs, [row.place for row in covered], waits=True))
    return new_rows


def condensed(old_lines: Sequence[Observation], lines: Sequence[Line], most_tokens: int) -> list[NewRow]:
    """Return the rows that replace lines: each old line goes into one new line, if possible into one that cites it.

    A new line cites the messages of all old ones that it names, so that it goes with each of them.
    """
    groups: list[list[Observation]] = [[] for _ in lines]
    last = 0
    for number, old_line in enumerate(old_lines, 1):
        last = next((index for index, line in enumerate(lines) if number in line.numbers), last)
        groups[last].append(old_line)
    new_rows, texts, cited_rows = list[NewRow](), list[str](), set[int]()
    for line, group in zip(lines, groups, strict=True):
        texts.append(line.text)
        cited_rows |= {old_lines[number - 1].place[1] for number in line.numbers}
        if not group:  # all that it cites stands in lines before it: its words go into the next one
            continue
        new_rows.append(_condensed_row(" ".join(texts), line.priority, group, sorted(cited_rows)))
        texts, cited_rows = [], set()
    if texts:
        body, last_row = new_rows[-1].body, new_rows[-1]
        new_rows[-1] = last_row._replace(
            body={**body, "text": f"{body['text']} {' '.join(texts)}"},
            cited_rows=sorted({*last_row.cited_rows, *cited_rows}),
        )
    if sum(count_tokens(row.body["text"]) + TOKENS_OF_HEAD for row in new_rows) > most_tokens:
        raise BadAnswer(
            "The lines are not much shorter than the notes. Join what belongs together, and leave out what matters least."
        )
    return new_rows


def _condensed_row(text: str, priority: str, group: Sequence[Observation], cited_rows: Sequence[int]) -> NewRow:
    if (number := sum(line.messages for line in group)) > MOST_CONDENSED:
        raise BadAnswer(f"A line joins notes on {number} messages, {MOST_CONDENSED} are allowed. Write several lines.")
    ids = [*dict.fromkeys(id for line in group for _, id in line.sources)][:MOST_CITED]
    time, level = min(to_micros(line.said_at) for line in group), max(line.level for line in group) + 1
    body, replaced = body_of(text, time, priority, ids, number, level), [line.place[1] for line in group]
    return NewRow(body, replaces=replaced, cited_rows=cited_rows)
