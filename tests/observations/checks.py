"""What must hold after each step of a life, read from the public contract of observations alone."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import redis
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem._text.copies import is_from_memory, without_memory
from langchain_workingmem.history.provider_valid import provider_valid
from tests.helpers.conversations import RefusedError, accept
from tests.observations.scripted import CANARY, INSTRUCTIONS, TOKEN, WRONG

if TYPE_CHECKING:
    from tests.observations.world import World

Place = tuple[str, str]  # thread and message


class ViolationError(AssertionError):
    """Something that must hold does not; `rule` is its short name."""

    def __init__(self, rule: str, seen: str) -> None:
        super().__init__(f"[{rule}] {seen}")
        self.rule = rule


IGNORED: set[str] = set()  # rules that are known to be broken, while others are looked for


def require(holds: object, rule: str, seen: object = "") -> None:
    if not holds and rule not in IGNORED:
        raise ViolationError(rule, str(seen() if callable(seen) else seen)[:3000])


@dataclass
class Row:
    """A message of the current branch."""

    thread: str
    id: str
    seq: int
    stored_at: datetime
    message: BaseMessage
    canary: str

    @property
    def place(self) -> Place:
        return (self.thread, self.id)


@dataclass
class Truth:
    """What the store holds, read through history alone."""

    owner: str
    rows: list[Row]
    stored: set[str] = field(default_factory=set)  # canaries of all messages, superseded ones included

    @property
    def current(self) -> set[str]:
        return {row.canary for row in self.rows}


def canary_of(message: BaseMessage) -> str:
    found = set(CANARY.findall(words_of(message)))
    require(len(found) == 1, "a stored message has the words of one message", message)
    return str(found.pop())


def words_of(message: BaseMessage) -> str:
    return f"{message.text} {getattr(message, 'tool_calls', '')}"


def stored_rows(memory: Any, thread: str) -> list[Row]:
    rows = memory.history.page(thread, limit=10_000).items
    return [Row(thread, row.message.id, row.seq, row.stored_at, row.message, canary_of(row.message)) for row in rows]


def truth_of(life: World) -> dict[str, Truth]:
    """Read all threads. What a history holds is what somebody said, to the letter."""
    found = {}
    for thread, owner in life.threads.items():
        everything = life.plain.history.messages(thread, superseded=True)
        for message in everything:
            require(str(message.content) in life.said, "only what was said is stored", message)
        found[thread] = Truth(owner, stored_rows(life.plain, thread), {canary_of(one) for one in everything})
    return found


# ---------------------------------------------------------------------- what the model is shown


def blob_of(context: Any, stored: Collection[str | None]) -> str:
    """All that memory adds to a context: its blocks, without the words of the conversation."""
    parts = [*context.system]
    for message in context.messages:
        own, whole = str(without_memory(message).text), str(message.text)
        if is_from_memory(message) and message.id not in stored:
            parts.append(whole)
        elif whole != own:
            parts.append(whole.removesuffix(own))
    return "\n".join(parts)


def check_context(
    life: World,
    context: Any,
    thread: str,
    owner: str,
    expected: Sequence[Row],
    *,
    may_name: Iterable[str] = (),
    new: Sequence[str] = (),
) -> None:
    """Compare a context with the branch that it must show; `new` are the ids of what the caller passed as new."""
    try:
        accept(context.messages)
    except RefusedError as error:
        raise ViolationError("providers accept a context", str(error)) from error
    log = None if life.config.off else context.observations
    seen = list(log.observations) if log is not None else []
    cited = {tuple(source) for one in seen for source in one.sources}
    in_branch = {row.id: row for row in expected}
    present = [message for message in context.messages if message.id in in_branch]
    twice = [id for id, count in Counter(message.id for message in present).items() if count > 1]
    require(not twice, "a message is shown once", twice)
    for message in present:
        words = set(CANARY.findall(words_of(without_memory(message))))
        wanted = in_branch[str(message.id)].canary
        require(words <= {wanted}, "a raw message has its own words", message)
    order = [in_branch[str(message.id)].seq for message in present]
    require(order == sorted(order), "raw messages stand in order", order)
    question = next((m for m in reversed(context.messages) if isinstance(m, HumanMessage)), None)
    showable = {m.id for m in provider_valid([*(row.message for row in expected), *([question] if question else [])])}
    raw = {str(message.id) for message in present}
    neither = []
    for row in expected:
        if row.id not in showable:
            continue
        is_raw, is_cited = row.id in raw, row.place in cited
        if is_raw and is_cited:
            require(life.is_loose or row.place in life.forgiven, "no message reaches the model twice", row)
        is_observed = is_cited or row.place in life.forgiven or (life.is_loose and row.canary in life.observed)
        is_observed = is_observed or row.canary in life.model.faded
        if not is_raw and not is_observed:
            neither.append(row)
    if life.config.max_tokens is None:
        require(not neither, "each message reaches the model", [(r.place, r.seq, r.canary) for r in neither])
    else:
        require(
            len(neither) <= context.omitted,
            "what is cut is counted",
            (context.omitted, [(r.place, r.seq) for r in neither]),
        )
    if log is None:
        return
    check_log(life, log, thread, owner)
    check_blocks(life, context, seen, in_branch)
    if not life.config.recall:
        allowed = {row.canary for row in expected} | set(may_name)
        if life.config.scope == "user":
            others = [truth for name, truth in life.truth.items() if truth.owner == owner and name != thread]
            allowed |= {canary for truth in others for canary in truth.current}
        text = blob_of(context, in_branch) + " ".join(
            words_of(without_memory(m)) for m in context.messages if m.id not in new
        )
        foreign = set(CANARY.findall(text)) - allowed
        require(not foreign, "nothing of another branch is shown", (foreign, text[-800:]))


def check_blocks(life: World, context: Any, seen: Sequence[Any], stored: Collection[str | None]) -> None:
    """The block holds each visible observation once, escaped, and nothing else."""
    whole = " ".join(str(message.text) for message in context.messages) + " ".join(context.system)
    require(INSTRUCTIONS not in whole, "instructions stand in the system role of the observer only", whole[:300])
    require(WRONG not in whole, "a bad answer is not shown", whole[:300])
    if life.config.recall:
        return
    blob = blob_of(context, stored)
    require(blob.count("</observations>") <= 1, "what stands in a block is escaped", blob[:2000])
    shown = Counter(TOKEN.findall(blob))
    wanted = Counter(token for one in seen for token in TOKEN.findall(one.text))
    require(shown == wanted, "a context shows the log, each observation once", (shown, wanted, blob[:2000]))
    for one in seen:
        if html.escape(one.text, quote=False) not in blob:
            require(False, "an observation is shown as it is", (one.text, blob[:1500]))


def check_log(life: World, log: Any, thread: str, owner: str, *, is_whole: bool = False) -> None:
    """Every observation resolves to stored messages of the same owner, which are current.

    With `is_whole`, the log is not that of a context, which tells of its own thread only what is covered.
    """
    places = {
        row.place: row
        for name, truth in life.truth.items()
        for row in truth.rows
        if truth.owner == owner and (life.config.scope == "user" or name == thread)
    }
    is_numbered = (
        is_whole or life.config.scope == "thread"
    )  # else a log may have to learn of some, which have no id yet
    numbers = [one.id for one in log.observations if one.id or is_numbered]
    require(len(set(numbers)) == len(numbers), "ids of observations are unique", numbers)
    for one in log.observations:
        sources = [tuple(source) for source in one.sources]
        require(sources, "an observation has sources", one)
        missing = [source for source in sources if source not in places]
        require(not missing, "sources are current messages of the same owner", (missing, one))
        times = {places[source].stored_at for source in sources}
        require(one.said_at in times, "an observation is dated by its source", (one, times))
        require(WRONG not in one.text, "a bad answer is not committed", one)
        for source in sources if is_whole or life.config.scope == "thread" else ():
            until = log.covered_until.get(source[0], -1)
            require(places[source].seq <= until, "what is cited is covered", (source, places[source].seq, until))


# ---------------------------------------------------------------------- what the server holds


def read_key(client: redis.Redis, key: bytes, kind: bytes) -> bytes:
    bare: Any = client
    match kind:
        case b"hash":
            pairs = bare.hgetall(key)
            return b"\n".join([*pairs.keys(), *pairs.values()])
        case b"string":
            return bytes(bare.get(key) or b"")
        case b"zset":
            return b"\n".join(bare.zrange(key, 0, -1))
        case b"set":
            return b"\n".join(bare.smembers(key))
        case b"list":
            return b"\n".join(bare.lrange(key, 0, -1))
        case b"stream":
            return repr(bare.xrange(key)).encode()
        case b"none":
            return b""
    raise ViolationError("every key can be read", f"{key!r} is of type {kind!r}")


def everything(client: redis.Redis, pattern: str) -> dict[bytes, bytes]:
    bare: Any = client
    keys = sorted(set(bare.scan_iter(pattern, count=1000)))
    pipe = bare.pipeline(transaction=False)
    for key in keys:
        pipe.type(key)
    return {key: key + b"\n" + read_key(client, key, kind) for key, kind in zip(keys, pipe.execute(), strict=True)}


def check_server(life: World) -> None:
    """No key holds a word of a message that is not stored any more."""
    allowed = {canary for truth in life.truth.values() for canary in truth.stored}
    for key, data in everything(life.raw, f"{life.prefix}:*").items():
        left = {found.decode() for found in re.findall(CANARY.pattern.encode(), data)} - allowed
        require(not left, "what is deleted is gone", (key, left, data[:1500]))
        if WRONG.encode() in data:
            require(b"observ" in key, "a bad answer is not stored", key)


# ---------------------------------------------------------------------- what the model was asked


def check_calls(life: World) -> None:
    """What the calls since the last check were shown belongs to one user, and is stored; nothing is asked twice."""
    moments = [life.truth, *life.past]
    known = [truth for moment in moments for truth in moment.values()]
    live = {canary for truth in known for canary in truth.current}
    for call in life.calls:
        require(not call.problems, "a prompt keeps the contract", call.problems)
        words = call.canaries | set(CANARY.findall(call.outside))
        owners = [{truth.owner for truth in known if word in truth.stored} for word in words]
        require(not owners or set.intersection(*owners), "a call reads the messages of one user", (words, owners))
        if life.config.scope == "thread":
            names = [{name for m in moments for name in m if word in m[name].stored} for word in words]
            require(not names or set.intersection(*names), "a call reads one thread", (words, names))
        if call.kind != "observe":
            continue
        require(call.canaries <= live, "only what is current is observed", call.canaries - live)
        if call.is_good:
            life.observed |= call.canaries
            for word in call.canaries:
                life.asked[word] += 1
                is_due = life.asked[word] <= life.payable[word] or life.changed or life.config.slow
                require(is_due, "nothing is paid twice", (word, life.asked[word], life.payable[word]))
    if life.changed:  # what was under way meanwhile may be lost
        life.reopen()
