"""What becomes of observations when their messages, threads and owners go: nothing of what is gone is left in any key."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult

from langchain_workingmem import Memory, ObservationOptions, OptionError, RecallOptions, ThreadOwnershipError
from langchain_workingmem.observations import observing as observer
from langchain_workingmem.observations.log import Remembered
from langchain_workingmem.options import Scope
from langchain_workingmem.users.imports import load
from tests.helpers.archives import unsealed
from tests.helpers.crashes import CrashError, cut, ends_within
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY
from tests.observations.observers import Echo
from tests.helpers.types import Make

pytestmark = pytest.mark.programs

SCOPES: tuple[Scope, ...] = ("thread", "user")
each_scope = pytest.mark.parametrize("scope", SCOPES)
END = ("is that all?", "it is")
IDS: Any = {"thread_id": "t", "user_id": "u"}


def observed_by(scope: Scope, **more: Any) -> ObservationOptions:
    settings = {"message_tokens": 50, "keep_tokens": 0, "background": False, "model": Echo()}
    return ObservationOptions(scope=scope, **{**settings, **more})


def canary(thread: str, at: int) -> str:
    return f"canary{thread}x{at}x"


def talk(memory: Memory, thread: str = "t", user: str = "u", *, turns: int = 6, first: int = 0) -> None:
    """Store turns: in each, the user and the assistant say a word of their own; and a last one, which stays raw."""
    for at in range(2 * first, 2 * (first + turns), 2):
        question = HumanMessage(f"please note {canary(thread, at)}", id=f"m{at}")
        answer = AIMessage(f"noted {canary(thread, at + 1)}", id=f"m{at + 1}")
        memory.history.append([question, answer], thread_id=thread, user_id=user)
    end = [HumanMessage(END[0], id=f"q{first}"), AIMessage(END[1], id=f"a{first}")]
    memory.history.append(end, thread_id=thread, user_id=user)


def log_of(memory: Memory, thread: str = "t", user: str = "u") -> list[str]:
    return [one.text for one in memory.observations.get(thread_id=thread, user_id=user)]


def shown(memory: Memory, thread: str = "t", user: str = "u") -> dict[str, list[str]]:
    """Return what a context shows: texts of the log, texts of raw messages."""
    context = memory.context([HumanMessage("and now?")], thread_id=thread, user_id=user)
    assert context.observations is not None
    texts = [message.text.removesuffix("\n\n").split("</observations>\n\n")[-1] for message in context.messages[:-1]]
    return {
        "log": [one.text for one in context.observations],
        "raw": [text for text in texts if text not in END and not text.startswith("<observations>")],
    }


def everything(raw: redis.Redis, prefix: str) -> bytes:
    """Return all that is stored under the prefix, names included, as one text."""
    parts: list[Any] = []
    for key in raw.scan_iter(f"{prefix}:*", count=1000):
        parts.append(key)
        match raw.type(key):
            case b"hash":
                found: Any = raw.hgetall(key)
                parts += [part for pair in found.items() for part in pair]
            case b"zset":
                parts += list(raw.zrange(key, 0, -1))
            case b"stream":
                parts.append(repr(raw.xrange(key)).encode())
            case b"string":
                parts.append(raw.get(key))
            case kind:
                raise AssertionError((key, kind))
    return b"\n".join(parts)


@pytest.fixture
def observing(make_memory: Make) -> Any:
    """Make a memory that observes, and one that only stores."""

    def made(scope: Scope, **more: Any) -> tuple[Memory, Memory]:
        embeddings = WordEmbeddings()
        both = {"embeddings": embeddings, "recall": RecallOptions()}
        return make_memory(observations=observed_by(scope, **more), **both), make_memory(**both)

    return made


# -------------------------------------------------------------------- deletion


@each_scope
@pytest.mark.parametrize("by", ["the observing", "another"])
@pytest.mark.parametrize("how", ["delete", "update"])
def test_nothing_is_left_of_messages_that_are_deleted_or_edited(
    observing: Any, raw: redis.Redis, prefix: str, scope: Scope, by: str, how: str
) -> None:
    """Nor of observations that cite them; what these cite beside is raw again."""
    memory, other = observing(scope, model=Echo(together=2))
    talk(memory)
    log = memory.observations.observe("t", user_id="u")
    assert len(log) == 6
    memory.observations.delete(log.observations[4].id, **IDS)
    writer = memory if by == "the observing" else other
    if how == "delete":
        assert writer.history.delete(["m6", "m8", "m9"], **IDS) == 3
    else:
        edited = [HumanMessage("please note it", id="m6"), HumanMessage("please note that", id="m8")]
        writer.history.update([*edited, AIMessage("noted", id="m9")], **IDS)
    text = everything(raw, prefix)
    for at in (6, 8, 9):
        assert canary("t", at).encode() not in text
    for at in (0, 5, 10):
        assert text.count(canary("t", at).encode()) > 1  # in the log, too
    found = shown(memory)
    assert len(found["log"]) == 4
    beside = f"noted {canary('t', 7)}"
    assert found["raw"] == ([beside] if how == "delete" else ["please note it", beside, "please note that", "noted"])
    memory.observations.observe("t", user_id="u")
    assert shown(memory)["raw"] == []


@each_scope
@pytest.mark.parametrize("by", ["the observing", "another"])
@pytest.mark.parametrize("how", ["clear", "delete"])
def test_nothing_is_left_of_threads_that_are_cleared_or_deleted(
    observing: Any, raw: redis.Redis, prefix: str, scope: Scope, by: str, how: str
) -> None:
    memory, other = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread)
        memory.observations.observe(thread, user_id="u")
    writer = memory if by == "the observing" else other
    if how == "clear":
        assert writer.history.clear(**IDS) == 14
    else:
        assert writer.threads.delete(**IDS)
    assert b"canarytx" not in everything(raw, prefix)
    assert len([text for text in log_of(memory, "s") if "canarysx" in text]) == 12
    assert not [text for text in log_of(memory) if "canarytx" in text]


@each_scope
@pytest.mark.parametrize("how", ["clear", "delete"])
def test_a_thread_that_begins_again_is_observed_again(observing: Any, scope: Scope, how: str) -> None:
    """What a process knows of the old log is not taken for the new one, whose observations have the same numbers."""
    memory, other = observing(scope)
    for first in (0, 10, 20):
        talk(memory, first=first, turns=3)
        assert len(memory.observations.observe("t", user_id="u")) == 6
        expected = [
            f"please note {canary('t', at)}" if at % 2 == 0 else f"noted {canary('t', at)}"
            for at in range(2 * first, 2 * first + 6)
        ]
        assert shown(memory) == {"log": expected, "raw": []}
        if how == "clear":
            other.history.clear(**IDS)
        else:
            other.threads.delete(**IDS)


@each_scope
def test_a_truncated_end_is_hidden_and_comes_back_with_its_branch(observing: Any, scope: Scope) -> None:
    memory, other = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread, turns=3)
        memory.observations.observe(thread, user_id="u")
    whole = log_of(memory)
    other.history.truncate(after="m3", **IDS)
    gone = {f"please note {canary('t', 4)}", f"noted {canary('t', 5)}"}
    assert log_of(memory) == [text for text in whole if text not in gone]
    assert log_of(memory, "s") == [
        text for text in (whole if scope == "user" else log_of(memory, "s")) if text not in gone
    ]
    question, answer = (
        HumanMessage(f"please note {canary('t', 4)}", id="m4"),
        AIMessage(f"noted {canary('t', 5)}", id="m5"),
    )
    other.history.append([question, answer], **IDS)
    assert log_of(memory) == whole


# --------------------------------------------------------- what a model has said


class RefusedError(Exception):
    """What a provider answers that quotes its input."""


@each_scope
@pytest.mark.parametrize("fault", ["uncited", "raised"])
def test_no_error_and_no_warning_quotes_a_message(
    make_memory: Make, raw: redis.Redis, prefix: str, caplog: pytest.LogCaptureFixture, scope: Scope, fault: str
) -> None:
    model = Echo() if fault == "raised" else _Uncited()
    model.failure = RefusedError(f"cannot process {canary('t', 0)}") if fault == "raised" else None
    memory = make_memory(observations=observed_by(scope, model=model))
    talk(memory)
    usage = memory.observations.observe("t", user_id="u").usage
    assert usage.failures == 3
    assert usage.last_error
    assert ("RefusedError" in usage.last_error) == (fault == "raised")
    assert "canary" not in usage.last_error
    assert caplog.records
    assert "canary" not in caplog.text
    memory.threads.delete(**IDS)
    assert b"canary" not in everything(raw, prefix)


class _Uncited(Echo):
    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        result = super()._generate(messages)
        message = result.generations[0].message
        message.content = re.sub(r"\[\d+\] ", "", str(message.content))
        return result


# ----------------------------------------------------------------------- copies


def test_a_clone_has_the_log_of_its_source(observing: Any) -> None:
    memory, other = observing("thread", model=Echo(together=2))
    talk(memory)
    memory.observations.observe("t", user_id="u")
    source = memory.observations.get(**IDS)
    copy = other.threads.clone("t", new_thread_id="c", user_id="u")
    log = memory.observations.get(thread_id="c", user_id="u")
    assert [(one.id, one.text, one.said_at, one.priority, one.level) for one in log] == [
        (one.id, one.text, one.said_at, one.priority, one.level) for one in source
    ]
    assert [one.sources for one in log] == [
        [("c", copy.message_ids[message]) for _, message in one.sources] for one in source
    ]
    assert (log.revision, log.origin, log.pending_tokens) == (1, "clone", source.pending_tokens)
    assert shown(memory, "c") == {"log": [one.text for one in source], "raw": []}
    found = memory.observations.sources("2", thread_id="c", user_id="u", message_range=0)
    assert [hit.message.text for hit in found.hits] == [f"please note {canary('t', 2)}", f"noted {canary('t', 3)}"]
    talk(memory, "c", first=20, turns=1)
    again = memory.observations.observe("c", user_id="u")
    assert len({one.id for one in again}) == len(again) == 8


def test_a_clone_of_some_messages_has_what_cites_only_these(observing: Any) -> None:
    memory, _ = observing("thread", model=Echo(together=2))
    talk(memory)
    memory.observations.observe("t", user_id="u")
    some = {"m0", "m1", "m2", "m4", "m5", "q0", "a0"}  # m2 stands in an observation with m3
    memory.threads.clone("t", new_thread_id="c", message_ids=some)
    pairs = [f"please note {canary('t', at)} and noted {canary('t', at + 1)}" for at in (0, 4)]
    assert shown(memory, "c") == {"log": pairs, "raw": [f"please note {canary('t', 2)}"]}
    memory.threads.clone("t", new_thread_id="e", message_ids={"q0"})
    assert shown(memory, "e") == {"log": [], "raw": []}
    assert memory.observations.get(thread_id="e", user_id="u").revision == 0


# --------------------------------------------------------------------- transfer


def test_a_thread_takes_its_log_along(observing: Any) -> None:
    memory, other = observing("thread")
    talk(memory)
    before = list(memory.observations.observe("t", user_id="u"))
    other.threads.transfer("t", user_id="u", to="v")
    assert list(memory.observations.get(thread_id="t", user_id="v")) == before
    with pytest.raises(ThreadOwnershipError):
        memory.observations.get(**IDS)


def test_a_thread_that_goes_leaves_the_log_of_its_owner(observing: Any, raw: redis.Redis, prefix: str) -> None:
    memory, other = observing("user")
    for thread in ("t", "s"):
        talk(memory, thread, turns=2)
        memory.observations.observe(thread, user_id="u")
    other.threads.transfer("t", user_id="u", to="v")
    assert not any("canarytx" in text for text in log_of(memory, "s"))
    assert raw.zrange(f"{prefix}:observations:index:u:{{u}}", 0, -1) == [b"s"]
    found = shown(memory, "t", "v")
    assert (found["raw"], len(found["log"])) == ([], 4)
    other.threads.transfer("t", user_id="v", to="u")
    # all of it is observed: "s" was written last
    assert len(memory.observations.observe("t", user_id="u")) == 10
    assert not raw.exists(f"{prefix}:observations:index:u:{{v}}")
    assert shown(memory)["raw"] == []


# ------------------------------------------------------------- export and import


def moved(memory: Memory, target: Memory, user: str = "u", **more: Any) -> Any:
    records = [json.loads(json.dumps(record)) for record in unsealed(memory.users.export(user))]
    return records, target.users.load(records, **more)


@each_scope
def test_an_import_brings_logs_back(observing: Any, raw: redis.Redis, prefix: str, scope: Scope) -> None:
    memory, other = observing(scope, model=Echo(together=2))
    for thread in ("t", "s"):
        talk(memory, thread, turns=3)
        memory.observations.observe(thread, user_id="u")
    first = "t:" if scope == "user" else ""
    memory.observations.delete(f"{first}2", **IDS)
    memory.history.truncate("t", after="m3", user_id="u")
    records = [json.loads(json.dumps(record)) for record in unsealed(other.users.export("u"))]
    logs = [record for record in records if record["kind"] == "observations"]
    assert [record["thread_id"] for record in logs] == ["t", "s"]
    before = {
        thread: (memory.observations.get(thread_id=thread, user_id="u"), shown(memory, thread)) for thread in "ts"
    }
    assert other.users.delete("u").observations == 5
    assert b"canary" not in everything(raw, prefix)
    report = other.users.load(records)
    assert report.observations == 5
    for thread, (log, context) in before.items():
        found = memory.observations.get(thread_id=thread, user_id="u")
        assert list(found) == list(log)
        revision = 1 if scope == "thread" else 2  # one of each thread
        assert (found.covered_until, found.origin, found.revision) == (log.covered_until, "import", revision)
        assert shown(memory, thread) == context
    stored = everything(raw, prefix)
    again = other.users.load(records)
    assert (again.observations, again.messages, again.threads) == (0, 0, 0)
    assert len(everything(raw, prefix)) == len(stored)
    other.history.append(
        [HumanMessage(f"please note {canary('t', 4)}", id="m4"), AIMessage(f"noted {canary('t', 5)}", id="m5")], **IDS
    )
    assert f"please note {canary('t', 4)} and noted {canary('t', 5)}" in log_of(memory)
    other.history.delete(["m2"], **IDS)
    assert canary("t", 2).encode() not in everything(raw, prefix)


@each_scope
def test_an_import_leaves_out_what_cites_missing_or_other_messages(observing: Any, scope: Scope) -> None:
    memory, other = observing(scope, model=Echo(together=2))
    talk(memory)
    memory.observations.observe("t", user_id="u")
    records = [json.loads(json.dumps(record)) for record in unsealed(memory.users.export("u"))]
    memory.users.delete("u")
    records = [record for record in records if record.get("message", {"data": {"id": ""}})["data"]["id"] != "m4"]
    other.history.append([HumanMessage("something else", id="m0")], **IDS)
    report = other.users.load(records)
    assert report.observations == 4
    found = shown(memory)
    assert len(found["log"]) == 4
    assert found["raw"] == ["something else", f"noted {canary('t', 1)}", f"noted {canary('t', 5)}"]


@each_scope
def test_an_import_that_died_goes_on(observing: Any, scope: Scope) -> None:
    """Nothing is covered before its observations are there."""
    memory, other = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread, turns=2)
        memory.observations.observe(thread, user_id="u")
    records = unsealed(memory.users.export("u"))
    first = len(records) + 1  # each is an effect

    def complete(thread: str) -> list[str]:
        found = shown(memory, thread)
        texts = [text for text in found["log"] + found["raw"] if f"canary{thread}x" in text]
        return texts if other.threads.get(thread) else [canary(thread, at) for at in range(4)]

    for after in range(first, first + 40, 1 if NIGHTLY else 3):
        memory.users.delete("u")
        try:
            other._core.run(cut(load(other._core, iter(records), None), after))
        except CrashError:
            for thread in ("t", "s"):
                assert sorted(text.split()[-1] for text in complete(thread)) == [canary(thread, at) for at in range(4)]
        except RuntimeError:  # it was done before
            break
        other.users.load(records)
        for thread in ("t", "s"):
            assert shown(memory, thread)["raw"] == []
            assert len(complete(thread)) == 4
    else:
        pytest.fail("it never ends")


# ----------------------------------------------------------------------- expiry

YEAR = timedelta(days=365)
SOON = timedelta(milliseconds=600)


def test_the_log_of_a_thread_expires_with_it(observing: Any, make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(observations=observed_by("thread"), ttl=YEAR)
    talk(memory)
    memory.observations.observe("t", user_id="u")
    memory.threads.clone("t", new_thread_id="c")
    memory.history.delete(["m3"], **IDS)
    for thread in ("t", "c"):
        ends = {raw.pexpiretime(key) for key in raw.scan_iter(f"{prefix}:*:{{{thread}}}")}
        assert len(ends) == 1
        assert ends != {-1}
        assert raw.exists(f"{prefix}:observations:t:{{{thread}}}")


def gone(raw: redis.Redis, prefix: str, *threads: str) -> bool:
    return not any(raw.exists(f"{prefix}:thread:{{{thread}}}") for thread in threads)


def test_the_log_of_a_user_forgets_a_thread_that_expires(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    stays, brief = (make_memory(observations=observed_by("user"), ttl=ttl) for ttl in (None, SOON))
    for thread, memory in (("t", brief), ("s", stays)):
        talk(memory, thread, turns=2)
        memory.observations.observe(thread, user_id="u")
    assert len(log_of(stays, "s")) == 8
    wait_until(lambda: gone(raw, prefix, "t"))
    assert [text for text in log_of(stays, "s") if "canarytx" in text] == []
    assert [text for text in shown(stays, "s")["log"] if "canarytx" in text] == []
    talk(stays, "s", first=10, turns=1)
    stays.observations.observe("s", user_id="u")
    assert b"canarytx" not in everything(raw, prefix)
    assert len(log_of(stays, "s")) == 8
    assert raw.pexpiretime(f"{prefix}:observations:u:{{u}}") == -1


@each_scope
def test_a_log_that_redis_has_lost_is_made_again(observing: Any, raw: redis.Redis, prefix: str, scope: Scope) -> None:
    memory, _ = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread, turns=2)
        memory.observations.observe(thread, user_id="u")
    raw.delete(f"{prefix}:observations:u:{{u}}", f"{prefix}:observations:t:{{t}}")
    assert len(shown(memory)["raw"]) == 4
    talk(memory, "s", first=10, turns=1)
    memory.observations.observe("s", user_id="u")
    found = shown(memory, "s")
    assert len([text for text in found["log"] + found["raw"] if "canarysx" in text]) == 6
    memory.observations.observe("s", user_id="u")
    memory.observations.observe("t", user_id="u")
    assert shown(memory)["raw"] == shown(memory, "s")["raw"] == []


# ------------------------------------------------------- all data of a user


def named(raw: redis.Redis, prefix: str, user: str) -> list[bytes]:
    """Return the keys of a user itself."""
    return list(raw.scan_iter(f"{prefix}:*{{{user}}}*"))


@each_scope
def test_a_deletion_counts_observations_and_leaves_none(
    observing: Any, raw: redis.Redis, prefix: str, scope: Scope
) -> None:
    memory, other = observing(scope)
    for thread, owner in (("t", "u"), ("s", "u"), ("away", "u"), ("x", "v")):
        talk(memory, thread, owner, turns=2)
        memory.observations.observe(thread, user_id=owner)
    memory.threads.transfer("away", user_id="u", to="v")
    report = other.users.delete("u")
    assert (report.threads, report.observations, report.verified) == (2, 8, True)
    text = everything(raw, prefix)
    assert b"canarytx" not in text
    assert b"canarysx" not in text
    assert named(raw, prefix, "u") == []
    assert len(memory.observations.get(thread_id="x", user_id="v")) == (8 if scope == "user" else 4)
    assert shown(memory, "away", "v")["raw"] == []


@each_scope
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_an_observer_at_work_writes_nothing_for_a_user_that_is_deleted(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: Scope, background: bool, again: bool
) -> None:
    """Nor into the log of a new user and thread of these names."""
    other = make_memory()
    deleted: list[bool] = []

    class Slow(Echo):
        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            deleted.append(True)
            other.users.delete("u")
            if again:
                other.history.append([HumanMessage("back", id="m0")], **IDS)
            return super()._generate(messages)

    memory = make_memory(observations=observed_by(scope, model=Slow(), background=background))
    if background:
        question = HumanMessage("please note canarytx0x " * 40, id="m0")
        memory.history.append([question, AIMessage("noted", id="m1"), *map(HumanMessage, END)], **IDS)
        wait_until(lambda: not memory._core.state.room(Remembered).observing)
    else:
        talk(memory, turns=3)
        assert len(memory.observations.observe("t", user_id="u")) == 0
    assert deleted
    assert b"canary" not in everything(raw, prefix)
    assert not again or memory.observations.get(**IDS).observations == []
    if not again:
        assert named(raw, prefix, "u") == []


def test_an_import_cites_no_thread_of_others(observing: Any) -> None:
    memory, other = observing("user")
    talk(memory, "x", "v", turns=2)
    for thread in ("t", "s"):
        talk(memory, thread, turns=1)
        memory.observations.observe(thread, user_id="u")
    records = [json.loads(json.dumps(record)) for record in unsealed(memory.users.export("u"))]
    memory.users.delete("u")
    mine = [record for record in records if "s" not in (record.get("id"), record.get("thread_id"))]
    chunks = mine[-1]["chunks"]
    chunks[0]["observations"][0]["sources"].append(["x", "m0"])
    with pytest.raises(OptionError, match="is about 'x', too"):
        other.users.load(mine)
    assert other.threads.get("t") is None
    assert len(shown(memory, "x", "v")["raw"]) == 4


# ----------------------------------------------------------------------- a process that is killed while it commits


class _Named(Echo):
    """Writes its name in front of each line."""

    name: str = ""

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **more: Any) -> ChatResult:
        said = super()._generate(messages, *arguments, **more)
        said.generations[0].message.content = said.generations[0].text.replace("] ", f"] {self.name}: ")
        return said


@each_scope
def test_lines_of_a_killed_process_stay_gone(make_memory: Make, raw: redis.Redis, prefix: str, scope: Scope) -> None:
    """It is killed after each of its round trips, then the log is cleared."""
    killed, memory = (make_memory(observations=observed_by(scope, model=_Named(name=name))) for name in ("old", "new"))
    had_lines = []
    for after in range(1, 40):
        ids: Any = {"thread_id": f"t{after}", "user_id": f"u{after}"}
        talk(memory, *ids.values(), turns=1)
        memory.observations.observe(ids["thread_id"])
        talk(memory, *ids.values(), turns=1, first=10)
        is_over = ends_within(killed, observer.observe(killed._core.state, *ids.values()), after)
        for key in raw.scan_iter(f"{prefix}:observations:*", _type="HASH"):
            raw.hdel(key, "lease", "leased_until")  # as if its time were over
        had_lines.append("old:" in str(log_of(memory, *ids.values())))
        memory.observations.clear(**ids)
        assert "old:" not in str(log_of(memory, *ids.values()))
        memory.observations.observe(ids["thread_id"])
        places = zip((0, 1, 20, 21), ("please note", "noted") * 2, strict=True)
        expected = [f"{words} {canary(ids['thread_id'], at)}" for at, words in places]
        for one in (memory, killed):
            log = [text for text in shown(one, *ids.values())["log"] if "canary" in text]
            assert log == [f"new: {text}" for text in expected]
        if is_over:
            break
    else:
        pytest.fail("it never ends")
    assert {*had_lines} == {True, False}  # it was killed before the commit and after it
