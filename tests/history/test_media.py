"""Long media lie beside the messages of their thread, come back on every way out, and go with their message."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, MessageNotFoundError, WorkingMemError
from langchain_workingmem._redis.scripts import change_thread
from langchain_workingmem.history import read
from tests.helpers.archives import unsealed
from tests.helpers.examples import sample
from tests.helpers.media import NAMED, kept
from tests.helpers.media import asks as asks_of
from tests.helpers.types import Make

TURN: Any = {"thread_id": "t", "user_id": "u"}
LONG = 50_000  # bytes, whose base64 lies beside the message


def asks(text: str, *seeds: int, id: str | None = None) -> HumanMessage:
    return asks_of(text, *seeds, id=id, size=LONG)


def test_a_transfer_keeps_media_and_deletions_take_them(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    plain.history.append([asks("a", 1, 2, id="a"), asks("b", 1, id="b")], **TURN)
    plain.threads.transfer("t", user_id="u", to="v")
    assert kept(raw, prefix) == 3
    plain.history.delete(["a"], thread_id="t")
    assert kept(raw, prefix) == 1
    assert plain.history.messages("t") == [asks("b", 1, id="b")]
    plain.users.delete("v")
    assert not [key for key in raw.keys(f"{prefix}:*") if b"layout" not in key]


def step(rng: random.Random, memory: Memory, ids: list[str]) -> None:
    """Do something to thread t that changes which messages there are, or their media."""

    def said(id: str | None = None) -> list[BaseMessage]:
        return [asks(f"q{rng.randrange(6)}", *(rng.randrange(4) for _ in range(rng.randrange(3))), id=id)]

    some = rng.choice(ids) if ids else "none"
    history = memory.history
    match rng.randrange(11):
        case 0:
            history.append([*said(), AIMessage("a")], **TURN)
        case 1:
            memory.save_turn([*said(), AIMessage(f"a{rng.randrange(3)}")], **TURN)
        case 2:
            history.update(said(some), thread_id="t")
        case 3:
            history.append(said(some), **TURN)
        case 4:
            history.delete(rng.sample(ids, min(len(ids), 2)), thread_id="t")
        case 5:
            history.truncate("t", after=some)
        case 6:  # an edited conversation, as a client sends it
            now: list[BaseMessage] = history.messages("t")
            if now:
                at = rng.randrange(len(now))
                now[at] = said(now[at].id)[0]
            memory.context([*now, *said()], **TURN)
            memory.save_turn([*now, *said(), AIMessage("b")], **TURN)
        case 7:  # an older branch again
            old = [one for one in history.messages("t", superseded=True) if rng.random() < 0.7]
            asked = [*old, HumanMessage("again?")]
            memory.context(asked, **TURN)
            memory.save_turn([*asked, AIMessage("c")], **TURN)
        case 8:
            memory.users.load(unsealed(memory.users.export("u")))
        case 9:
            memory._core.run(change_thread(memory._core.state, "t", "u", "refuse", refused=[some]))
        case 10 if rng.random() < 0.2:
            history.clear("t")


@pytest.mark.parametrize("seed", sample(range(300), 8))
def test_no_life_of_a_thread_leaves_media_without_a_message(
    memory: Memory, raw: redis.Redis, prefix: str, seed: int
) -> None:
    rng = random.Random(seed)
    most = 0
    for _ in range(25):
        ids = [one.id or "" for one in memory.history.messages("t", superseded=True)]
        with suppress(MessageNotFoundError, WorkingMemError):
            step(rng, memory, ids)
        most = max(most, kept(raw, prefix))
        memory.history.messages("t", superseded=True)  # which raises where media are lost
    assert most
    clone = memory.threads.clone("t").thread.id
    assert kept(raw, prefix, clone) <= kept(raw, prefix)
    memory.history.delete([one.id or "" for one in memory.history.messages("t", superseded=True)], thread_id="t")
    assert kept(raw, prefix) == 0


def before_media(monkeypatch: pytest.MonkeyPatch, *changes: Any) -> None:
    """Change the thread between the round trip that reads messages and the one that reads their media."""
    module: Any = read
    send, waiting = module.send, [*changes]

    def changed(*commands: Any) -> Any:
        if waiting and commands[0][0] == "HMGET":
            waiting.pop(0)()
        return (yield from send(*commands))

    monkeypatch.setattr(read, "send", changed)


def test_a_message_that_is_deleted_while_it_is_read_is_left_out(
    memory: Memory, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_memory()
    reads: tuple[Callable[[], list[Any]], ...] = (
        lambda: memory.history.messages("t"),
        lambda: [one.message for one in memory.history.page("t").items],
        lambda: [
            one for one in unsealed(memory.users.export("u")) if one["kind"] == "message" and one["thread_id"] == "t"
        ],
    )
    for seed, look in enumerate(reads):
        memory.history.append([asks("a", seed, id="a"), asks("b", 100, id="b")], **TURN)
        with monkeypatch.context() as patch:
            before_media(patch, lambda: other.history.delete(["a"], thread_id="t"))
            assert len(look()) == 1


def test_a_turn_names_media_that_are_lost(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    plain.history.append([asks("a", 1, id="a")], **TURN)
    raw.delete(f"{prefix}:media:{{t}}")
    assert plain.context("b", **TURN).messages[0].content == [{"type": "text", "text": "a"}, NAMED]
    assert plain.history.messages("t") == []
