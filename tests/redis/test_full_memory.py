"""Search on a full server: it may find nothing without a word, which is never taken for an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Finding, Memory, RecallOptions, RedisReplyError, WorkingMemoryOptions
from langchain_workingmem._engine.effects import SEARCHES, Command, Send, attempt
from langchain_workingmem._engine.replies import RAW
from langchain_workingmem._redis.acl import rules
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.layout import WhenFull, oom_policy, search_again, when_full, with_layout
from langchain_workingmem._redis.state import MemoryState
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embedded import full_memory, search_on_oom
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.operations import OPERATIONS, STORE_OPERATIONS, Caller, options
from tests.helpers.trips import Trips
from tests.keeping.keeping import Profile, document
from tests.keeping.scripted import knows, put

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]
MakeStore = Callable[..., RedisMemoryStore]
PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])
WHOLE = {"embeddings": WordEmbeddings(), "recall": RecallOptions()}


@pytest.fixture
def hiding(raw: Any) -> Iterator[None]:
    """Let Search find nothing when memory is full."""
    with search_on_oom(raw, "return"):
        yield


@pytest.fixture
def guest(server: EmbeddedRedis, raw: Any, prefix: str) -> Iterator[Callable[..., str]]:
    """Make a user with the rights of an application, changed by more rules, and return the URL by which it logs in."""

    def make(*more: str) -> str:
        raw.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">hunter2", *rules(Keys(prefix)), *more)
        return f"{server.url}?username={prefix}&password=hunter2"

    yield make
    raw.execute_command("ACL", "DELUSER", prefix)


def tell(memory: Memory) -> None:
    for thread in ("t", "s"):
        memory.history.append([HumanMessage("my pin is 1234")], thread_id=thread, resource_id="u")
    memory.threads.clone("t", new_thread_id="c")


def refused(call: Callable[..., object], *arguments: object) -> RedisReplyError:
    with pytest.raises(RedisReplyError, match="raise maxmemory") as caught:
        call(*arguments)
    assert caught.value.code == "OOM"
    return caught.value


FINDING: dict[str, Callable[[Memory], Any]] = {
    "recall.search": lambda memory: memory.recall.search("the pin", resource_id="u").hits,
    "context": lambda memory: memory.context("the pin", thread_id="t", resource_id="u").recalled.hits,
    "threads.list": lambda memory: memory.threads.list(resource_id="u").items,
    "history.for_resource": lambda memory: memory.history.for_resource("u").items,
    "users.export": lambda memory: list(memory.users.export("u"))[3:],
}


@pytest.mark.usefixtures("hiding")
@PROTOCOLS
def test_what_searches_on_a_full_server_raises(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    memory = make_memory(f"{server.url}?protocol={protocol}", **WHOLE)
    tell(memory)
    for name, search in FINDING.items():
        assert search(memory), name
        with full_memory(raw):
            assert "search-on-oom ignore" in str(refused(search, memory)), name
            refused(search, make_memory(f"{server.url}?protocol={protocol}", **WHOLE))
        assert search(memory), name


@pytest.mark.usefixtures("hiding")
@PROTOCOLS
def test_a_store_that_searches_on_a_full_server_raises(
    make_store: MakeStore, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    index = {"dims": 64, "embed": WordEmbeddings(), "fields": ["text"]}
    store = make_store(redis_url=f"{server.url}?protocol={protocol}", index=index)
    store.put(("a", "b"), "k", {"text": "a red fox"})
    searches: list[Callable[[], Any]] = [
        lambda: store.search(("a",)),
        lambda: store.search(("a",), query="fox"),
        lambda: store.search(("a",), filter={"text": {"$gt": "a"}}),
        lambda: store.list_namespaces(prefix=("a",)),
    ]
    for search in searches:
        assert search()
        with full_memory(raw):
            refused(search)
        assert search()


@pytest.mark.parametrize("search", ["answers", "hiding"])
def test_what_only_frees_memory_works_on_a_full_server(
    make_memory: Make, raw: Any, prefix: str, search: str, request: pytest.FixtureRequest
) -> None:
    """With logs, values and files, and where Search then finds no threads."""
    if search == "hiding":
        request.getfixturevalue(search)
    keeper = knows({"pin is 0": [put("/city", "Xanadu")]})
    kept = WorkingMemoryOptions(schema=Profile, keeper=keeper, background=False)
    memory = make_memory(**options() | {"working_memory": kept}, ttl=timedelta(days=1))
    for thread in "abc":
        said = [HumanMessage(f"my pin is {number}", id=f"{number}") for number in range(12)]
        memory.history.append(said, thread_id=thread, resource_id="u")
        memory.observations.observe(thread, resource_id="u")
        memory.working_memory.keep(thread, resource_id="u")
    memory.files.write("/notes/pin.md", "1234", resource_id="u")
    with full_memory(raw):
        assert memory.history.truncate("a", after="0", resource_id="u") == 11
        assert memory.history.delete(["0"], thread_id="a") == 1
        assert memory.history.clear("b") == 12
        assert document(memory, "c") == {"city": "Xanadu"}
        assert memory.files.delete("/", purge=True, resource_id="u") == 1
        deleted = [memory.history.delete(thread_id=thread, until=datetime.now(UTC)) for thread in "abc"]
        assert deleted == [11, 0, 12]
        assert document(memory, "c") == {}
        assert memory.users.delete("u").verified
    assert list(raw.scan_iter(f"{prefix}:*{{*")) == []


@pytest.mark.usefixtures("hiding")
@PROTOCOLS
def test_reindexing_on_a_full_server_does_not_claim_that_nothing_is_left(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    make_memory(**WHOLE).setup()
    tell(make_memory())
    memory = make_memory(f"{server.url}?protocol={protocol}", create_index=False, **WHOLE)
    with full_memory(raw):
        refused(lambda: memory.recall.reindex(progress=False))
    assert memory.recall.reindex(progress=False) == 3


@PROTOCOLS
def test_a_full_server_that_is_told_to_answer_does(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    memory = make_memory(f"{server.url}?protocol={protocol}", **WHOLE)  # the embedded server is told at its start
    tell(memory)
    whole = {name: repr(search(memory)) for name, search in FINDING.items()}
    with full_memory(raw):
        assert {name: repr(search(memory)) for name, search in FINDING.items()} == whole
        assert memory.threads.list(resource_id="nobody").items == []


@PROTOCOLS
def test_a_full_server_that_is_told_to_fail_raises_the_same(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    with search_on_oom(raw, "fail"):
        memory = make_memory(f"{server.url}?protocol={protocol}", **WHOLE)
        tell(memory)
        with full_memory(raw):
            for search in FINDING.values():
                refused(search, memory)


# ---------------------------------------------------------------------- what it costs, and where it is not needed


def nobody(memory: Memory) -> Callable[[], object]:
    def look() -> None:
        assert memory.threads.list(resource_id="nobody").items == []

    return look


@pytest.mark.usefixtures("hiding")
def test_an_honest_empty_answer_costs_one_more_round_trip_where_search_may_hide(
    make_memory: Make, server: EmbeddedRedis, trips: Trips
) -> None:
    memory, third = make_memory(), make_memory(f"{server.url}?protocol=3")
    memory.threads.create(thread_id="t", resource_id="u")
    assert trips.of(nobody(memory)) == 2
    assert trips.of(lambda: memory.threads.list(resource_id="u")) == 1
    assert trips.of(nobody(third)) == 1


def test_elsewhere_it_costs_nothing(plain: Memory, trips: Trips) -> None:
    assert trips.of(nobody(plain)) == 1


def test_the_setting_is_read_in_the_round_trip_of_the_layout(make_memory: Make, trips: Trips) -> None:
    make_memory().threads.create(thread_id="t", resource_id="u")

    def first(*, checked: bool) -> int:
        memory = make_memory()
        memory._core.state.layout_known = checked
        before = trips.count
        memory.threads.get("t")
        return trips.count - before

    assert first(checked=False) == first(checked=True) + 1


def test_the_second_look_finds_what_the_first_found(
    make_memory: Make,
    make_store: MakeStore,
    runner: asyncio.Runner | None,
    server: EmbeddedRedis,
    commands: list[Command],
) -> None:
    caller = Caller(memory=make_memory(**options()), runner=runner)
    compared, doubtful = 0, MemoryState(keys=Keys(), when_full="nothing")
    with redis.Redis.from_url(server.url, protocol=2) as bare:

        def compare(call: Callable[..., object], *arguments: object) -> None:
            nonlocal compared
            commands.clear()
            call(*arguments)
            for command in [command for command in commands if command[0] in SEARCHES]:
                with suppress(redis.ResponseError):  # the index is gone: the deletion of a resource comes last
                    first = bare.execute_command(*command, **RAW)
                    replies: list[Any] = [[0]]
                    plan = search_again(doubtful, [command], replies)
                    effect = next(plan)
                    assert isinstance(effect, Send)
                    with suppress(StopIteration):
                        plan.send([bare.execute_command(*effect.commands[0], **RAW)])
                    assert replies == [first], command
                    compared += 1

        for operation in OPERATIONS.values():
            compare(operation.call, caller)
        store = make_store(index={"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]})
        for step in STORE_OPERATIONS.values():
            compare(step.call, store, ("memories", "maya"), "a", "b")
    assert compared > 40


# ---------------------------------------------------------------------- who may not ask


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_a_user_without_the_right_to_read_the_setting_is_told_once_and_never_deceived(
    make_memory: Make, guest: Callable[..., str], raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with search_on_oom(raw, "return"):
        memory = make_memory(guest(), **WHOLE)
        tell(memory)
        nobody(memory)()
        (said,) = warnings_of(caplog)
        assert "grant +config|get" in said
        assert "search-on-oom ignore" in said
        with full_memory(raw):
            for search in FINDING.values():
                refused(search, memory)
    with full_memory(raw):  # the server answers, which this user cannot know
        nobody(memory)()
        assert memory.threads.list(resource_id="u").items
    assert warnings_of(caplog) == []


@pytest.mark.usefixtures("hiding")
def test_a_user_who_may_not_ask_again_is_told_once(
    make_memory: Make, guest: Callable[..., str], caplog: pytest.LogCaptureFixture, trips: Trips
) -> None:
    memory = make_memory(guest("+config|get", "-ft.profile"))
    for _ in range(3):
        nobody(memory)()
    setting, answers = warnings_of(caplog)
    assert "search-on-oom is 'return'" in setting
    assert "grant +ft.profile" in answers
    assert trips.of(nobody(memory)) == 1


def test_where_search_always_answers_nobody_is_told_anything(
    make_memory: Make, guest: Callable[..., str], raw: Any, caplog: pytest.LogCaptureFixture, trips: Trips
) -> None:
    memories = [make_memory(), make_memory(guest("+config|get"))]
    if not raw.config_get("search-on-oom"):
        memories.append(make_memory(guest()))
    for memory in memories:
        assert trips.of(nobody(memory)) == 1
    assert warnings_of(caplog) == []


SEARCH: dict[bytes, Any] = {b"modules": [[b"name", b"search", b"ver", 80610]]}
NOPERM = RedisReplyError("NOPERM User u has no permissions")


@pytest.mark.parametrize(
    ("setting", "about", "policy"),
    [
        ([b"search-on-oom", b"return"], SEARCH, "return"),
        ({b"search-on-oom": b"ignore"}, SEARCH, "ignore"),
        ([b"search-on-oom", b"fail"], NOPERM, "fail"),
        (NOPERM, SEARCH, None),
        (NOPERM, NOPERM, None),
        ([], SEARCH, None),  # it has the setting, and does not show it
        ([], [b"modules", [[b"name", b"search", b"ver", 80013]]], ""),
        (NOPERM, [b"modules", [{b"name": b"search", b"ver": 21005}]], ""),
        ([], [b"modules", []], ""),  # without Search, or an old server that hides its modules
    ],
)
def test_what_a_server_says_of_the_setting(setting: Any, about: Any, policy: str | None) -> None:
    assert oom_policy(setting, about) == policy


@pytest.mark.parametrize(
    ("policy", "about", "answers"),
    [
        ("return", [b"mode", b"standalone"], "nothing"),
        ("return", {b"mode": b"cluster"}, "part"),
        (None, [b"mode", b"cluster"], "part"),
        (None, NOPERM, "nothing"),
        ("ignore", [b"mode", b"cluster"], "all"),
        ("fail", NOPERM, "all"),
        ("", [b"mode", b"cluster"], "all"),
    ],
)
def test_what_a_full_server_may_answer(policy: str | None, about: Any, answers: str) -> None:
    assert when_full(policy, about) == answers


# ---------------------------------------------------------------------- the doctor


def looked_at(memory: Memory, check: str = "search when full") -> Finding | None:
    return next((finding for finding in memory.doctor() if finding.check == check), None)


@pytest.mark.parametrize(("policy", "level"), [("return", "warning"), ("fail", "ok"), ("ignore", "ok")])
@PROTOCOLS
def test_the_doctor_says_what_search_does_when_memory_is_full(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int, policy: str, level: str
) -> None:
    memory = make_memory(f"{server.url}?protocol={protocol}")
    with search_on_oom(raw, policy):
        found = looked_at(memory)
    assert found is not None
    assert found.level == level
    assert policy in found.message
    assert ("search-on-oom ignore" in (found.remedy or "")) == (level == "warning")


def test_the_doctor_says_nothing_of_it_where_search_always_answers_and_nobody_may_ask(
    make_memory: Make, guest: Callable[..., str], raw: Any
) -> None:
    found = looked_at(make_memory(guest()))
    if raw.config_get("search-on-oom"):
        assert found is not None
        assert found.level == "unknown"
        assert "+config|get" in str(found.remedy)
    else:
        assert found is None
        assert looked_at(make_memory()) is None


@pytest.mark.usefixtures("hiding")
@PROTOCOLS
def test_the_doctor_of_a_full_server_does_not_count_what_it_cannot_find(
    make_memory: Make, server: EmbeddedRedis, raw: Any, protocol: int
) -> None:
    memory = make_memory(f"{server.url}?protocol={protocol}", **WHOLE)
    tell(memory)
    with full_memory(raw):
        found = looked_at(memory, "vectors")
    assert found is not None
    assert found.level == "unknown"
    assert found.message.startswith("OOM")


# ---------------------------------------------------------------------- by hand: what a single server does not do


FIND: Command = ("FT.SEARCH", "wm:threads", "*", "LIMIT", 0, 1)
OOM = b"One or more shards failed to execute the query due to insufficient memory"


def drive(
    *answers: Any, commands: tuple[Command, ...] = (FIND,), when_full: WhenFull = "nothing"
) -> tuple[list[Any], list[Command]]:
    """Play a server that may hide what it finds; return the replies that a plan gets, and what was asked."""
    state = MemoryState(keys=Keys(), layout_known=True, when_full=when_full)
    plan, asked, reply = with_layout(state, attempt(*commands)), list[Command](), None
    left = iter(answers)
    try:
        while True:
            effect = plan.send(reply)
            assert isinstance(effect, Send)
            asked += effect.commands
            reply = next(left)
    except StopIteration as done:
        assert next(left, None) is None
        return done.value, asked


def profile(*shards: Any) -> list[Any]:
    return [b"Shards", [[b"Total profile time", b"0", b"Warning", said] for said in shards], b"Coordinator", []]


def test_what_is_found_at_the_second_look_is_the_answer() -> None:
    found = [1, b"wm:thread:{t}", []]
    replies, asked = drive([[0], b"x"], [[found, profile([b"None"])]], commands=(FIND, ("HGET", "a", "b")))
    assert replies == [found, b"x"]
    assert asked[2:] == [("FT.PROFILE", "wm:threads", "SEARCH", "LIMITED", "QUERY", "*", "LIMIT", 0, 1)]


@pytest.mark.parametrize(
    "report",
    [
        profile([b"None"], [OOM]),
        profile(b"None", OOM),
        profile([OOM], [OOM]),
        profile(),  # the coordinator itself is full, and asks no shard
    ],
)
def test_a_shard_that_is_full_is_an_error(report: Any) -> None:
    ((error,), _) = drive([[0]], [[[0], report]])
    assert (error.code, "search-on-oom ignore" in error.remedy) == ("OOM", True)
    assert str(error).count("failed to execute") < 2


@pytest.mark.parametrize("report", [profile([b"None"], [b"None"]), profile(b"None"), [[b"Warning"], [b"Iterators"]]])
def test_nothing_is_an_answer_if_every_shard_was_well(report: Any) -> None:
    assert drive([[0]], [[[0], report]])[0] == [[0]]


def test_in_a_cluster_any_answer_may_lack_what_a_full_node_holds() -> None:
    part, whole = [1, b"a", []], [2, b"a", [], b"b", []]
    assert drive([part], [[whole, profile([b"None"], [b"None"])]], when_full="part")[0] == [whole]
    ((error,), asked) = drive([part], [[part, profile([b"None"], [OOM])]], when_full="part")
    assert error.code == "OOM"
    assert len(asked) == 2
    assert drive([part], when_full="nothing") == ([part], [FIND])


def test_over_resp3_nothing_is_asked_twice() -> None:
    empty: dict[bytes, Any] = {b"results": [], b"total_results": 0, b"warning": []}
    assert drive([empty], when_full="part") == ([empty], [FIND])


def test_an_index_that_goes_before_the_second_look_is_missing() -> None:
    gone = RedisReplyError("wm:threads: no such index")
    assert drive([[0]], [gone])[0] == [gone]


@pytest.mark.parametrize(
    ("warning", "code", "remedy"),
    [
        ([OOM], "OOM", "search-on-oom ignore"),
        (OOM, "OOM", "search-on-oom ignore"),  # as the coordinator of a cluster sends it
        ([b"Timeout limit was reached"], "INCOMPLETE", "search-workers"),
        (
            [b"Index contains partial data due to an indexing failure caused by insufficient memory"],
            "INCOMPLETE",
            "FT.DROPINDEX wm:threads",
        ),
        ([b"Index contains partial data due to insufficient memory", OOM], "OOM", "raise maxmemory"),
        ([b"Results may be incomplete due to Atomic Slot Migration."], "INCOMPLETE", "search again"),
    ],
)
def test_an_answer_with_a_warning_is_an_error(warning: Any, code: str, remedy: str) -> None:
    ((error,), asked) = drive([{b"results": [], b"total_results": 0, b"warning": warning}])
    assert asked == [FIND]
    assert isinstance(error, RedisReplyError)
    assert error.code == code
    assert remedy in str(error.remedy)


@pytest.mark.parametrize("warning", [[], [b"Query TIMEOUT exceeded the maximum; effective timeout was capped"]])
def test_an_answer_that_is_whole_is_used(warning: Any) -> None:
    reply = {b"results": [], b"total_results": 0, b"warning": warning}
    assert drive([reply])[0] == [reply]


def test_a_field_of_that_name_is_no_warning() -> None:
    stored = {b"warning": b"memory"}
    assert drive([stored], commands=(("HGETALL", "wm:thread:{t}"),))[0] == [stored]
