"""A change of files decides before it writes: when it fails, nothing has happened; a lost reply repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem._engine.plan import Plan, Send
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.files import Files
from langchain_workingmem.files import operations as plans
from tests.files.checks import check_stored
from tests.helpers.embedded import full_memory
from tests.helpers.plans import plan_of
from tests.helpers.types import Make

ANN: dict[str, Any] = {"user_id": "ann"}

CHANGES: dict[str, Callable[[Any], Any]] = {
    "write": lambda files: plan_of(Files.write, files, "/new/x", "n", **ANN),
    "write again": lambda files: plan_of(Files.write, files, "/a", "n", **ANN),
    "write on a base": lambda files: plan_of(Files.write, files, "/a", "n", base_revision=4, **ANN),
    "edit": lambda files: plan_of(Files.edit, files, "/a", "c", "C", **ANN),
    "insert": lambda files: plan_of(Files.insert, files, "/a", 1, "x", **ANN),
    "revert": lambda files: plan_of(Files.revert, files, "/a", 2, **ANN),
    "bring back": lambda files: plan_of(Files.revert, files, "/gone", 1, **ANN),
    "rename": lambda files: plan_of(Files.rename, files, "/a", "/gone", **ANN),
    "rename directory": lambda files: plan_of(Files.rename, files, "/d", "/e", **ANN),
    "delete": lambda files: plan_of(Files.delete, files, "/a", **ANN),
    "delete directory": lambda files: plan_of(Files.delete, files, "/d", **ANN),
    "purge": lambda files: plan_of(Files.delete, files, "/", purge=True, **ANN),
}


@pytest.fixture
def memory(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Files with all that there can be, and round trips of two."""
    monkeypatch.setattr(plans, "GROUP", 2)
    memory = make_memory(files=FileOptions(revisions=2, ttl=timedelta(days=1)))
    for text in ("a", "a\nb\nc\nd\ne\n", "a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne\nF\n"):
        memory.files.write("/a", text, **ANN)
    memory.files.write("/gone", "x", **ANN)
    memory.files.delete("/gone", **ANN)
    for number in range(5):
        memory.files.write(f"/d/{number}", f"{number}", **ANN)
    return memory


def stored(raw: Any, prefix: str) -> dict[str, Any]:
    _, paths, texts, notes, _ = keys = Keys(prefix).of_user("ann").files
    with suppress(Exception):
        return {paths: raw.zrange(paths, 0, -1), texts: raw.hgetall(texts), notes: raw.hgetall(notes)}
    return {key: raw.dump(key) for key in keys}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_on_a_full_server_happens_or_is_refused_as_a_whole(
    memory: Memory, raw: Any, prefix: str, name: str
) -> None:
    before = stored(raw, prefix)
    with full_memory(raw):
        if name == "purge":  # it makes room
            assert memory._core.run(CHANGES[name](memory.files)) == 6
        else:
            with pytest.raises(RedisReplyError, match="raise maxmemory") as caught:
                memory._core.run(CHANGES[name](memory.files))
            assert caught.value.code == "OOM"
            assert stored(raw, prefix) == before
    check_stored(raw, prefix, "ann", 2)


# ---------------------------------------------------------------------- lost replies


def listed(memory: Memory) -> Any:
    return memory.files.glob("**", **ANN)


def resending(plan: Plan[Any], lost: int) -> Plan[Any]:
    """Perform a plan, but send the request number `lost` twice, as after a lost reply."""
    try:
        effect, trip = next(plan), 0
        while True:
            reply: Any = yield effect
            if isinstance(effect, Send) and not isinstance(reply[0], Exception):  # the server knows the script
                assert not effect.at_most_once
                if trip == lost:
                    again = yield effect
                    assert again == reply
                trip += 1
            effect = plan.send(reply)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("name", CHANGES)
def test_a_request_that_is_sent_again_is_not_applied_twice(
    memory: Memory, make_memory: Make, raw: Any, prefix: str, name: str, lost: int
) -> None:
    beside = make_memory(key_prefix=f"{prefix}b", files=FileOptions(revisions=2, ttl=timedelta(days=1)))
    source, target = (Keys(one).of_user("ann").files for one in (prefix, f"{prefix}b"))
    for key, other in zip(source, target, strict=True):
        if raw.exists(key):
            raw.copy(key, other)
    told: list[Any] = []
    for one, plan in ((memory, resending(CHANGES[name](memory.files), lost)), (beside, CHANGES[name](beside.files))):
        done = one._core.run(plan)
        found = [(info.path, info.revision, one.files.read(info.path, **ANN).content) for info in listed(one)]
        result = done if isinstance(done, int) else (done.occurrences, done.line, done.changed, done.revision)
        told.append((result, found, one.files.usage(**ANN)))
    assert told[0] == told[1]
    check_stored(raw, prefix, "ann", 2)


def test_a_reply_that_came_late_is_the_same_after_other_changes(memory: Memory) -> None:
    """The edit happened, its reply was lost, others went on, and it is sent again."""

    def late(plan: Plan[Any]) -> Plan[Any]:
        effect = plan.send((yield next(plan)))  # the text was read, and it is to be written
        first = yield effect
        memory.files.edit("/a", "C", "c", **ANN)
        again = yield effect
        assert again == first
        try:
            plan.send(again)
        except StopIteration as done:
            return done.value

    edited = memory._core.run(late(CHANGES["edit"](memory.files)))
    assert edited.info.revision == 5
    found = memory.files.read("/a", **ANN)
    assert (found.revision, "c" in str(found.content)) == (6, True)
