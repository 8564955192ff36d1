"""Values go before the messages that they stand on: forget, change the messages, forget again.

The first step leaves no word of them, and says that the messages are going, so that no keeper takes anything of them until the
last step. Each step gives the values a new version, so that a commit which has read another one is refused and made again; it then
reads the messages again. So no order of the steps, and no end of a process between two of them, leaves a value of a deleted
message. A process that ends after the first step leaves the message, and its caller repeats the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, attempt, send
from langchain_workingmem._redis.keys import Keys, decode, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.ranges import ranges_of, write_ranges
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.keeping.store.commits import VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Command, Send
    from langchain_workingmem._redis.keys import ThreadKeys
    from langchain_workingmem._redis.state import MemoryState

FORGET = Script("keeping/forget", *VALUES)
CITED = Script("keeping/cited", *VALUES)
HIDE = Script("keeping/hide", *VALUES)
TOLD = Script("keeping/told")


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of messages, as a script names it in WMKEPT."""

    keys: Keys
    thread_id: str
    owners: tuple[str, ...]  # with the user into which the owner is being merged
    scopes: str  # r: the working memory of the owner, t: that of the thread
    what: str = ""  # delete, clear (all messages), thread, transfer, edit, or move (between branches)
    ranges: str = ""  # "all", or positions
    ids: Sequence[str] = field(default=())

    @property
    def tag(self) -> str:
        """Return the thread as keys have it."""
        return encode(self.thread_id)

    def memories(self) -> list[tuple[str, ...]]:
        """Return the KEYS of each working memory that may hold values of the thread."""
        found: list[tuple[str, ...]] = [*map(self.keys.of_user, self.owners)] if "u" in self.scopes else []
        return [*found, self.keys.of(self.thread_id)] if "t" in self.scopes else found

    def forget(self, step: str, names: Sequence[bytes] = ()) -> Plan[list[Any]]:
        """Do one of the steps; return names that the next one needs. One round trip."""
        is_gone = {"thread": 1, "transfer": 2}.get(self.what, 0)
        # the memory of a thread goes with it, and to its new owner
        memories = [one for one in self.memories() if self.what != "move" and (len(one) == 3 or not is_gone)]
        flags = int(self.what == "edit" or step == "release"), is_gone
        calls = [
            FORGET.call(one, self.thread_id, self.tag, step, name, self.ranges, *flags, *self.ids)
            for one, name in zip(memories, names or [b""] * len(memories), strict=True)
        ]
        return (yield from send(*calls)) if calls else []

    def begin(self) -> Plan[tuple[_Change, list[bytes]]]:
        """Do the first step; return also the change as it goes on. One round trip, two during a merge of the owner."""
        names = yield from self.forget("begin")
        into = [decode(one.partition(b"/")[2]) for one in names[: len(self.owners)] if b"/" in one]
        if not into or into[0] in self.owners:
            return self, [one.partition(b"/")[0] for one in names]
        return (yield from replace(self, owners=(*self.owners, into[0])).begin())


def forgetting(error: RedisReplyError, effect: Send) -> Plan[list[Any]]:
    """Forget what messages say, send the command that changes them, and forget again; return the replies. Two further round trips."""
    first, *others = effect.commands
    prefix, _, tag = str(first[3]).partition(":thread:{")
    what, scopes, owner, ranges, ids = str(error).partition(" ")[2].split("/")
    named = [decode(one) for one in ids.split(",") if one]
    change = _Change(Keys(prefix), decode(tag[:-1]), (decode(owner),), scopes, what, ranges, named)
    change, names = yield from change.begin()
    *told, last = first
    told.append(f"{ranges}@{owner}!{str(last).rpartition('!')[2]}")
    replies = yield from attempt(tuple(told), *others, at_most_once=effect.at_most_once, in_order=effect.in_order)
    if what == "move":
        yield from _hide(change)
    else:
        yield from change.forget("release" if isinstance(replies[0], RedisReplyError) else "end", names)
    return replies


def moved(state: MemoryState, thread_id: str, moves: bytes) -> Plan[None]:
    """Let values know what a save has moved between branches, as its script has replied it. Four round trips."""
    scopes, owner, _, left = moves.decode().split("/")
    change = _Change(state.keys, thread_id, (decode(owner),), scopes, "edit", left)
    if left:  # an older version of a message came back: its words are others
        change, names = yield from change.begin()
        yield from change.forget("end", names)
    yield from _hide(change)


def _hide(change: _Change) -> Plan[None]:
    """Note which messages that values cite are on other branches now. Four round trips, two without values."""
    keys, memories = change.keys.of(change.thread_id), change.memories()
    (moves, unforgotten), *cited = yield from send(
        ("HMGET", keys.thread, "moves", "unforgotten"), *(CITED.call(one, change.thread_id) for one in memories)
    )
    if moves is None:
        return
    ids = list(dict.fromkeys(id for reply in cited for id in reply[::2]))
    if ids:
        seqs, hidden = yield from _places(keys, ids)
        calls = []
        for one, reply in zip(memories, cited, strict=True):
            unstored = [id for id, seq in zip(reply[::2], reply[1::2], strict=True) if seq == b"-1" and id in seqs]
            pairs = [part for id in unstored for part in (id, seqs[id])]
            calls.append(HIDE.call(one, change.thread_id, change.tag, moves, hidden, *pairs))
        yield from send(*calls)
    yield from send(TOLD.call(keys.all, moves, unforgotten or ""))


def _places(keys: ThreadKeys, ids: Sequence[bytes]) -> Plan[tuple[dict[bytes, int], str]]:
    """Return the positions of messages by id, and those on other branches as ranges. One round trip, two where a client has other ids."""
    calls: list[Command] = [("ZMSCORE", key, *ids) for key in (keys.aliases, keys.order, keys.superseded)]
    aliases, order, superseded = (
        {
            id: int(float(one))
            for id, one in zip(ids, column, strict=True)
            if one is not None and float(one).is_integer()
        }
        for column in (yield from send(*calls))
    )
    hidden = {*superseded.values()}
    if others := [seq for id, seq in aliases.items() if id not in order and id not in superseded]:
        replies = yield from send(*(("ZRANGE", keys.superseded, seq, seq, "BYSCORE") for seq in others))
        hidden |= {seq for seq, reply in zip(others, replies, strict=True) if reply}
    return {**aliases, **order, **superseded}, write_ranges(ranges_of(hidden))
