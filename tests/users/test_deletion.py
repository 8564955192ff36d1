"""Everything of a user is deleted, and nothing else, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import FileOptions, Memory, WorkingMemoryOptions, users
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import UserDeletedError
from langchain_workingmem.history.save import append
from langchain_workingmem.options import Scope
from tests.helpers.archives import unsealed
from tests.helpers.crashes import CrashError, cut
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.odd_ids import NAMES, secrets_in, tell
from tests.helpers.plans import meanwhile
from tests.helpers.types import Make
from tests.users.samples import FILE


def full(make_memory: Make, *, scope: Scope = "user", **options: Any) -> Memory:
    """Two users, u and v, with two threads each, and a working memory each or one in each thread."""
    noting = WorkingMemoryOptions(template="", scope=scope)
    memory = make_memory(embeddings=WordEmbeddings(), working_memory=noting, **options)
    for name in ("u", "v"):
        for thread in (f"{name}1", f"{name}2"):
            said = [HumanMessage(f"the tea of {name}", id="q"), AIMessage("noted", id="a")]
            memory.history.append(said, thread_id=thread, user_id=name)
            memory.working_memory.update("likes tea", thread_id=thread, user_id=name)
            memory.working_memory.update("likes milk", thread_id=thread, user_id=name)
    return memory


@pytest.fixture
def stocked(make_memory: Make) -> Memory:
    return full(make_memory)


def tracks(raw: redis.Redis, prefix: str, user: str) -> list[bytes]:
    """Return the keys that belong to a user, looked for in every place."""
    found = []
    for key in raw.scan_iter(f"{prefix}:*"):
        owner = raw.hget(key, "user") if raw.type(key) == b"hash" else None
        if owner == user.encode() or b"{%b" % user.encode() in key:
            found.append(key)
    return found


def test_everything_goes_and_is_counted(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    before = set(tracks(raw, prefix, "v"))
    report = stocked.users.delete("u")
    assert (report.user_id, report.threads, report.messages, report.vectors) == ("u", 2, 4, 4)
    assert (report.working_memories, report.revisions) == (1, 2)
    assert report.verified
    assert tracks(raw, prefix, "u") == []
    assert set(tracks(raw, prefix, "v")) == before
    assert stocked.recall.search("tea", user_id="u").hits == []
    assert stocked.working_memory.update("new", user_id="u").revision == 1  # who begins again


def test_similar_names_are_left_alone(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings())
    for name in NAMES:
        tell(memory, name)
    left = set(NAMES)
    for name in NAMES[::9]:
        report = memory.users.delete(name)
        assert (report.threads, report.messages, report.vectors, report.verified) == (1, 2, 2, True)
        left.remove(name)
    assert {thread.user_id for thread in memory.threads.list(limit=1000)} == left
    for name in left:
        assert secrets_in(memory.recall.search("the pin of mine", user_id=name)) == {name}


@pytest.mark.parametrize("name", ["memory", "thread", "vector", "files", "memory:u", "tombstone"])
@pytest.mark.parametrize("is_inner_first", [False, True])
def test_a_memory_whose_prefix_begins_with_another_one_has_nothing_to_do_with_it(
    make_memory: Make, raw: redis.Redis, prefix: str, name: str, is_inner_first: bool
) -> None:
    """As `app` and `app:memory`: their keys look alike."""
    stored: list[tuple[Memory, dict[bytes, Any]]] = []
    for key_prefix in (prefix, f"{prefix}:{name}"):
        before = set(raw.scan_iter(f"{prefix}:*"))
        memory = full(make_memory, key_prefix=key_prefix, files=FileOptions())
        memory.files.write("/tea.md", "of u", user_id="u")
        stored.append((memory, {key: raw.dump(key) for key in raw.scan_iter(f"{prefix}:*") if key not in before}))
    (first, mine), (second, others) = reversed(stored) if is_inner_first else stored
    report = first.users.delete("u")
    assert (report.threads, report.messages, report.vectors, report.files, report.verified) == (2, 4, 4, 1, True)
    assert {key: raw.dump(key) for key in others} == others
    left = set(raw.scan_iter(f"{prefix}:*")) - others.keys() - {f"{prefix}:layout".encode()}
    assert left < mine.keys()
    assert not [key for key in left if b"{u" in key]
    first.history.append([HumanMessage("back")], thread_id="u3", user_id="u")  # nobody is locked out
    texts = [{hit.message.text for hit in one.recall.search("the tea", user_id="u").hits} for one in (first, second)]
    assert ["the tea of u" in one for one in texts] == [False, True]
    assert second.users.delete("u").verified
    assert first.threads.list(user_id="u").total == 1


def test_what_no_index_knows_is_found(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(create_index=False)
    for place in range(1500):
        raw.set(f"{prefix}:else:{{{place}}}", 1)  # more than one step of SCAN
    memory.history.append([HumanMessage("x")], thread_id="t", user_id="u")
    raw.hset(f"{prefix}:vector:{{gone}}:0:0:3:!", mapping={"user": "u", "thread": "gone", "text": "lost"})
    raw.set(f"{prefix}:thread:{{foreign}}", "no hash at all")
    report = memory.users.delete("u")
    assert (report.threads, report.messages, report.vectors, report.verified) == (1, 1, 1, True)
    assert raw.exists(f"{prefix}:thread:{{foreign}}")
    assert (memory.history.messages("t"), tracks(raw, prefix, "u")) == ([], [])


def test_what_redis_has_left_of_a_thread_goes_too(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    tell(memory, "a")
    raw.delete(f"{prefix}:thread:{{a}}")  # its vectors say whose it is
    assert memory.users.delete("a").verified
    assert not list(raw.scan_iter(f"{prefix}:*{{*"))


def test_a_deletion_goes_on_wherever_it_was_interrupted(make_memory: Make) -> None:
    with EmbeddedRedis() as empty, redis.Redis.from_url(empty.url) as raw:
        make_memory(empty.url).users.delete("nobody")  # the server knows the scripts
        for after in count(1):
            memory = full(make_memory, redis_url=empty.url, key_prefix=f"p{after}")
            try:
                memory._core.run(cut(users.delete(memory._core.state, "u", "first"), after))
            except CrashError:
                pass
            except RuntimeError:  # it came to its end
                assert after > 6
                break
            with pytest.raises(UserDeletedError):
                memory.history.append([HumanMessage("x")], thread_id="u1", user_id="u")
            assert memory.users.delete("u").verified
            assert tracks(raw, f"p{after}", "u") == []
            assert memory.threads.list(user_id="v").total == 2


def test_a_deletion_that_was_overtaken_leaves_the_tombstone_of_the_other(
    stocked: Memory, raw: redis.Redis, prefix: str
) -> None:
    tombstone, steps = f"{prefix}:tombstone:{{u}}", count()
    first = users.delete(stocked._core.state, "u", "first")
    second = lambda _: next(steps) == 1 and raw.set(tombstone, "second")  # noqa: E731
    assert stocked._core.run(meanwhile(first, second)).verified
    assert raw.get(tombstone) == b"second"
    assert stocked.users.delete("u").verified
    assert tracks(raw, prefix, "u") == []


def test_every_write_is_refused_and_leaves_nothing(
    stocked: Memory, make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    threaded = full(make_memory, scope="thread")
    exported = unsealed(stocked.users.export("v"))
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion that was interrupted")
    before = set(raw.scan_iter(f"{prefix}:*"))
    note = [HumanMessage("late", id="late")]
    new = count()
    tries: list[Callable[[], Any]] = [
        lambda: stocked.history.append(note, thread_id=f"n{next(new)}", user_id="u"),
        lambda: stocked.save_turn(note, thread_id=f"n{next(new)}", user_id="u"),
        lambda: stocked.history.update([HumanMessage("the tea of x", id="q")], thread_id="u2", user_id="u"),
        lambda: stocked.threads.create(user_id="u", thread_id=f"n{next(new)}", title="T", metadata={"a": 1}),
        lambda: stocked.threads.update("u2", user_id="u", title="T"),
        lambda: stocked.threads.clone("u2"),
        lambda: stocked.threads.transfer("v1", user_id="v", to="u"),
        lambda: stocked.working_memory.update("x", user_id="u"),
        lambda: stocked.working_memory.clear(user_id="u"),
        lambda: stocked.working_memory.revert(1, user_id="u"),
        lambda: stocked.threads.create(user_id="u", thread_id=f"n{next(new)}", working_memory="x"),
        lambda: threaded.working_memory.update("x", thread_id=f"n{next(new)}", user_id="u"),
        lambda: threaded.working_memory.update("x", thread_id="u2", user_id="u"),
        lambda: threaded.working_memory.revert(1, thread_id="u2", user_id="u"),
        lambda: stocked.users.load([exported[0], {"kind": "thread", "id": "imported", "title": "T"}], user_id="u"),
        lambda: stocked.users.load([exported[0], FILE], user_id="u"),
    ]
    for number, attempt in enumerate(tries):
        with pytest.raises(UserDeletedError, match=r"users\.delete\(\)") as refusal:
            attempt()
        assert refusal.value.user_id == "u", number
        assert set(raw.scan_iter(f"{prefix}:*")) == before, number
    assert stocked.threads.get("v1", user_id="v") is not None
    with pytest.raises(UserDeletedError):
        stocked.threads.transfer("u2", user_id="u", to="v")  # it cannot flee: it is deleted at once
    assert stocked.threads.get("u2") is None
    assert stocked.threads.list(user_id="v").total == 2
    assert stocked.users.delete("u").verified
    assert tracks(raw, prefix, "u") == []


def test_a_refused_message_in_a_thread_that_others_use_is_taken_away(
    plain: Memory, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    """Somebody's later message stays: it came when the deletion was over."""
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion")

    def later(effect: Any) -> None:
        if "undo" in str(getattr(effect, "commands", "")):
            raw.delete(f"{prefix}:tombstone:{{u}}")
            with Memory(server.url, key_prefix=prefix) as other:
                other.history.append([HumanMessage("late", id="late")], thread_id="t", user_id="u")

    with pytest.raises(UserDeletedError):
        plain._core.run(meanwhile(append(plain._core, [HumanMessage("early", id="early")], "t", "u"), later))
    assert [message.id for message in plain.history.messages("t")] == ["late"]
