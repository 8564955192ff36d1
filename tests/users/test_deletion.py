"""Everything of a resource is deleted, and nothing else, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeVar

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import FileOptions, Memory, ObservationOptions, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._engine.effects import Masters, Plan
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import IdError, RedisReplyError, ResourceDeletedError
from langchain_workingmem.history import save_messages
from langchain_workingmem.options import Scope
from langchain_workingmem.users import operations as resources
from tests.helpers.archives import unsealed
from tests.helpers.crashes import CrashError, cut
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.observers import Echo
from tests.helpers.odd_ids import NAMES, secrets_in, tell
from tests.helpers.trips import Trips

Make = Callable[..., Memory]
T = TypeVar("T")


def full(make_memory: Make, *, scope: Scope = "resource", **options: Any) -> Memory:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(),
        working_memory=WorkingMemoryOptions(template="", scope=scope),
        **options,
    )
    for name in ("u", "v"):
        for thread in (f"{name}1", f"{name}2"):
            memory.history.append(
                [HumanMessage(f"the tea of {name}", id="q"), AIMessage("noted", id="a")],
                thread_id=thread,
                resource_id=name,
            )
            memory.working_memory.update("likes tea", thread_id=thread, resource_id=name)
            memory.working_memory.update("likes milk", thread_id=thread, resource_id=name)
    return memory


@pytest.fixture
def stocked(make_memory: Make) -> Memory:
    """Two resources, u and v, with two threads each and one working memory."""
    return full(make_memory)


def tracks(raw: redis.Redis, prefix: str, resource: str) -> list[bytes]:
    """Return the keys that belong to a resource, looked for in every place."""
    found = []
    for key in raw.scan_iter(f"{prefix}:*"):
        owner = raw.hget(key, "resource") if raw.type(key) == b"hash" else None
        if owner == resource.encode() or b"{%b}" % resource.encode() in key or b"{%b" % resource.encode() in key:
            found.append(key)
    return found


# ------------------------------------------------------------------ what goes


def test_everything_goes_and_is_counted(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    before = set(tracks(raw, prefix, "v"))
    report = stocked.delete_resource("u")
    assert (report.resource_id, report.threads, report.messages, report.vectors) == ("u", 2, 4, 4)
    assert (report.working_memories, report.revisions) == (1, 2)
    assert report.verified
    assert tracks(raw, prefix, "u") == []
    assert set(tracks(raw, prefix, "v")) == before
    assert stocked.recall.search("tea", resource_id="u").hits == []
    assert stocked.working_memory.get(resource_id="u").revision == 0


def test_the_working_memory_of_threads_is_counted(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    report = full(make_memory, scope="thread").delete_resource("u")
    assert (report.working_memories, report.revisions) == (2, 4)
    assert tracks(raw, prefix, "u") == []


def test_a_resource_without_anything_is_empty_already(plain: Memory) -> None:
    report = plain.delete_resource("nobody")
    assert (report.threads, report.messages, report.verified) == (0, 0, True)
    with pytest.raises(IdError, match="resource_id is empty"):
        plain.delete_resource("")


def test_a_deleted_resource_may_begin_again(stocked: Memory) -> None:
    stocked.delete_resource("u")
    stocked.history.append([HumanMessage("back")], thread_id="u1", resource_id="u")
    stocked.working_memory.update("new", resource_id="u")
    assert stocked.threads.list(resource_id="u").total == 1
    assert stocked.working_memory.get(resource_id="u").revision == 1


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_deletion_that_cannot_begin_locks_nobody_out(
    stocked: Memory, make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str, interrupted: bool
) -> None:
    bare: Any = raw
    bare.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">pw", "~*", "+@all", "-ft.aggregate")
    clerk = make_memory(f"{server.url}?username={prefix}&password=pw")  # who may not list threads
    if interrupted:  # an earlier deletion, which may have taken something
        raw.set(f"{prefix}:tombstone:{{u}}", "its mark")
    before = set(tracks(raw, prefix, "u"))
    with pytest.raises(RedisReplyError, match="NOPERM"):
        clerk.delete_resource("u")
    assert set(tracks(raw, prefix, "u")) == before
    if interrupted:
        with pytest.raises(ResourceDeletedError):
            stocked.history.append([HumanMessage("more")], thread_id="u1", resource_id="u")
    else:
        stocked.history.append([HumanMessage("more")], thread_id="u1", resource_id="u")
    bare.execute_command("ACL", "DELUSER", prefix)


def test_a_deletion_that_is_refused_half_way_keeps_writers_out(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    order = Keys(prefix).of("u1").order
    raw.rename(order, f"{prefix}-kept")
    raw.set(order, "no sorted set: the script fails")
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        stocked.delete_resource("u")
    assert stocked.threads.get("u2") is None
    with pytest.raises(ResourceDeletedError):
        stocked.history.append([HumanMessage("more")], thread_id="u2", resource_id="u")
    raw.rename(f"{prefix}-kept", order)
    assert stocked.delete_resource("u").verified
    assert tracks(raw, prefix, "u") == []


def test_similar_names_are_left_alone(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    for name in NAMES:
        tell(memory, name)
    left = set(NAMES)
    for name in NAMES[::9]:
        report = memory.delete_resource(name)
        assert (report.threads, report.messages, report.vectors, report.verified) == (1, 2, 2, True)
        left.remove(name)
    assert {thread.resource_id for thread in memory.threads.list(limit=1000)} == left
    for name in left:
        assert secrets_in(memory.recall.search("the pin of mine", resource_id=name)) == {name}


@pytest.mark.nightly  # test_slices.py deletes in steps, test_without_an_index_the_keys_are_looked_through looks in steps
def test_no_number_is_too_large(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(embeddings=WordEmbeddings(8), recall=RecallOptions())
    many = [HumanMessage(f"word{place % 50}", id=str(place)) for place in range(11_000)]
    for start in range(0, len(many), 1000):
        memory.history.append(many[start : start + 1000], thread_id="long", resource_id="u")
    with raw.pipeline() as pipe:  # as threads.create makes them
        for place in range(11_000):
            fields: dict[Any, Any] = {
                "resource": "u",
                "created_at": place,
                "updated_at": place,
                "count": 0,
                "next_seq": 0,
            }
            pipe.hset(f"{prefix}:thread:{{n{place}}}", mapping=fields)
        pipe.execute()
    report = memory.delete_resource("u")
    assert (report.threads, report.messages, report.vectors, report.verified) == (11_001, 11_000, 11_000, True)
    assert tracks(raw, prefix, "u") == []


def test_without_an_index_the_keys_are_looked_through(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(create_index=False)
    for place in range(1500):
        raw.set(f"{prefix}:else:{{{place}}}", 1)  # more than one step of SCAN
    memory.history.append([HumanMessage("x")], thread_id="t", resource_id="u")
    report = memory.delete_resource("u")
    assert (report.threads, report.messages, report.verified) == (1, 1, True)
    assert memory.history.messages("t") == []


def test_what_the_index_does_not_know_is_found(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    raw.hset(f"{prefix}:vector:{{gone}}:0:0:3", mapping={"resource": "u", "thread": "gone", "text": "lost"})
    raw.set(f"{prefix}:thread:{{foreign}}", "no hash at all")
    assert stocked.delete_resource("u").vectors == 5
    assert raw.exists(f"{prefix}:thread:{{foreign}}")
    assert tracks(raw, prefix, "u") == []


def test_working_memory_that_comes_back_is_counted_as_what_it_is(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    plan = resources.delete(plain._core.state, "u", "mark")

    def written_past_us() -> Plan[Any]:
        effect = next(plan)
        try:
            while True:
                if isinstance(effect, Masters) and not seen:
                    raw.hset(f"{prefix}:memory:r:{{u}}", "document", "x")
                    seen.extend(raw.xadd(f"{prefix}:revisions:r:{{u}}", {"document": "x"}) for _ in range(2))
                effect = plan.send((yield effect))
        except StopIteration as done:
            return done.value

    seen: list[Any] = []
    report = plain._core.run(written_past_us())
    assert (report.vectors, report.working_memories, report.revisions, report.verified) == (0, 1, 2, True)
    assert tracks(raw, prefix, "u") == []


def test_the_cost_of_a_deletion(make_memory: Make, trips: Trips) -> None:
    with EmbeddedRedis() as empty:
        memory = make_memory(empty.url)
        # tombstone, threads, working memory, one step through the keys, tombstone again
        assert trips.of(lambda: memory.delete_resource("nobody")) == 5
        memory.threads.create(resource_id="other")
        assert trips.of(lambda: memory.delete_resource("nobody")) == 6


# ------------------------------------------------------------------ crashes


def test_a_deletion_goes_on_wherever_it_was_interrupted(make_memory: Make) -> None:
    with EmbeddedRedis() as empty, redis.Redis.from_url(empty.url) as raw:
        make_memory(empty.url).users.delete("nobody")  # the server knows the scripts
        for after in count(1):
            memory = full(make_memory, redis_url=empty.url, key_prefix=f"p{after}")
            try:
                memory._core.run(cut(resources.delete(memory._core.state, "u", "first"), after))
            except CrashError:
                pass
            except RuntimeError:  # it came to its end
                assert after > 6
                break
            with pytest.raises(ResourceDeletedError):
                memory.history.append([HumanMessage("x")], thread_id="u1", resource_id="u")
            assert memory.delete_resource("u").verified
            assert tracks(raw, f"p{after}", "u") == []
            assert memory.threads.list(resource_id="v").total == 2


def test_a_deletion_that_was_overtaken_leaves_the_tombstone_of_the_other(
    stocked: Memory, raw: redis.Redis, prefix: str
) -> None:
    core = stocked._core
    first = resources.delete(core.state, "u", "first")
    with pytest.raises(CrashError):
        core.run(cut(resources.delete(core.state, "u", "second"), 1))
    raw.set(f"{prefix}:tombstone:{{u}}", "second")

    def overtaken() -> Plan[Any]:
        effect = next(first)
        result = yield effect
        raw.set(f"{prefix}:tombstone:{{u}}", "second")
        try:
            while True:
                result = yield first.send(result)
        except StopIteration as done:
            return done.value

    assert core.run(overtaken()).verified
    assert raw.get(f"{prefix}:tombstone:{{u}}") == b"second"
    assert stocked.delete_resource("u").verified
    assert tracks(raw, prefix, "u") == []


# ------------------------------------------------------------------ writers


def test_every_write_is_refused_and_leaves_nothing(
    stocked: Memory, make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    threaded = full(make_memory, scope="thread")
    exported = unsealed(stocked.export_resource("v"))
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion that was interrupted")
    before = set(raw.scan_iter(f"{prefix}:*"))
    note = [HumanMessage("late", id="late")]
    new = count()
    tries: list[Callable[[], Any]] = [
        lambda: stocked.history.append(note, thread_id=f"n{next(new)}", resource_id="u"),
        lambda: stocked.save_turn(note, thread_id=f"n{next(new)}", resource_id="u"),
        lambda: stocked.history.update([HumanMessage("the tea of x", id="q")], thread_id="u2", resource_id="u"),
        lambda: stocked.threads.create(resource_id="u", thread_id=f"n{next(new)}", title="T", metadata={"a": 1}),
        lambda: stocked.threads.update("u2", resource_id="u", title="T"),
        lambda: stocked.threads.clone("u2"),
        lambda: stocked.threads.transfer("v1", resource_id="v", to="u"),
        lambda: stocked.working_memory.update("x", resource_id="u"),
        lambda: stocked.working_memory.clear(resource_id="u"),
        lambda: stocked.working_memory.revert(1, resource_id="u"),
        lambda: stocked.threads.create(resource_id="u", thread_id=f"n{next(new)}", working_memory="x"),
        lambda: threaded.working_memory.update("x", thread_id=f"n{next(new)}", resource_id="u"),
        lambda: threaded.working_memory.update("x", thread_id="u2", resource_id="u"),
        lambda: threaded.working_memory.clear(thread_id="u2", resource_id="u"),
        lambda: threaded.working_memory.revert(1, thread_id="u2", resource_id="u"),
        lambda: stocked.import_resource(
            [{**record, **({"id": "imported"} if record["kind"] == "thread" else {})} for record in exported[:1]]
            + [{"kind": "thread", "id": "imported", "title": "T"}],
            resource_id="u",
        ),
        lambda: stocked.import_resource(exported[:2], resource_id="u"),
    ]
    for number, attempt in enumerate(tries):
        with pytest.raises(ResourceDeletedError, match=r"users\.delete\(\)") as refusal:
            attempt()
        assert refusal.value.resource_id == "u", number
        assert set(raw.scan_iter(f"{prefix}:*")) == before, number
    assert stocked.threads.get("v1", resource_id="v") is not None
    assert stocked.delete_resource("u").verified
    assert tracks(raw, prefix, "u") == []


def test_a_thread_cannot_flee_from_a_deletion(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion")
    with pytest.raises(ResourceDeletedError):
        stocked.threads.transfer("u2", resource_id="u", to="v")
    assert stocked.threads.get("u2") is None
    assert stocked.threads.list(resource_id="v").total == 2
    assert stocked.delete_resource("u").threads == 1


def test_a_refused_message_in_a_thread_that_others_use_is_taken_away(
    plain: Memory, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    """Somebody's later message stays: it came when the deletion was over."""
    other = Memory(server.url, key_prefix=prefix)
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion")
    plan = save_messages(plain._core, [HumanMessage("early", id="early")], "t", "u")

    def slow() -> Plan[Any]:
        result: Any = None
        try:
            while True:
                effect = plan.send(result)
                if "undo" in str(getattr(effect, "commands", "")):
                    raw.delete(f"{prefix}:tombstone:{{u}}")
                    other.history.append([HumanMessage("late", id="late")], thread_id="t", resource_id="u")
                result = yield effect
        except StopIteration as done:
            return done.value

    with pytest.raises(ResourceDeletedError):
        plain._core.run(slow())
    other.close()
    assert [message.id for message in plain.history.messages("t")] == ["late"]


def test_a_write_that_meets_no_deletion_costs_what_it_did(plain: Memory, trips: Trips) -> None:
    fresh = count()
    assert trips.of(lambda: plain.history.append([HumanMessage("x")], thread_id="t", resource_id="u")) == 1
    assert trips.of(lambda: plain.threads.create(resource_id="u", thread_id=f"n{next(fresh)}")) == 1


def test_the_scripts_may_be_forgotten_between_two_deletions(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    """A tombstone that comes while the script is taught again is seen all the same."""
    raw.set(f"{prefix}:tombstone:{{u}}", "a deletion")
    raw.script_flush()
    with pytest.raises(ResourceDeletedError):
        stocked.history.append([HumanMessage("x")], thread_id="new", resource_id="u")
    assert not raw.exists(f"{prefix}:thread:{{new}}")


@pytest.mark.both_faces
def test_what_the_indexes_know_is_gone_before_the_look_at_all_keys_begins(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    observed = ObservationOptions(model=Echo(), message_tokens=1, keep_tokens=0, scope="resource")
    memory = full(make_memory, observations=observed, files=FileOptions(recall=True))
    memory.observations.observe("u1", resource_id="u")
    for name in ("a", "b"):
        memory.files.write(f"/{name}.md", "the pot is blue\n" * 300, resource_id="u")
    left, told = [], list[tuple[int, int | None]]()

    def look(counts: Mapping[str, int], looked: int | None) -> None:
        told.append((counts["threads"], looked))
        if looked == 0:
            left.append(tracks(raw, prefix, "u"))

    report = memory._core.run(resources.delete(memory._core.state, "u", "a deletion", told=look))
    assert left == [[f"{prefix}:tombstone:{{u}}".encode()]]
    assert told[:2] == [(2, None), (2, 0)]
    assert [looked for _, looked in told[2:]] == [1000 * at for at in range(1, len(told) - 1)]
    assert (report.verified, report.threads, report.files) == (True, 2, 2)
    assert report.vectors >= 10  # four messages and the chunks of files
    assert tracks(raw, prefix, "u") == []
