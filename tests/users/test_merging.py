"""A guest becomes a user: all that the guest has is the user's, and nothing else has changed, also beside others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import Memory, OptionError, ThreadOwnershipError, UserDeletedError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.users import merge
from tests.helpers.canaries import keys_with
from tests.helpers.crashes import ends_within
from tests.helpers.examples import NIGHTLY
from tests.helpers.plans import meanwhile
from tests.helpers.types import Make
from tests.users.guests import ANY, GUEST, THIRD, USER, everything, known, live, options, talk


def of(found: dict[str, Any], word: str) -> dict[str, str]:
    """Return the keys that hold a word, with what they hold."""
    return {key: value for key, value in found.items() if word in key or word in value}


def test_all_is_the_users_and_nothing_of_a_third_one_changes(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(**options())
    live(memory)
    third = of(everything(raw, prefix), THIRD) | of(everything(raw, prefix), "Oslo")
    report = memory.users.merge(GUEST, into=USER)
    assert (report.source, report.into) == (GUEST, USER)
    assert (report.threads, report.messages, report.working_memories) == (1, 4, 1)
    now = known(memory)
    lisbon, xanadu = (["I live in " + place, "I see, 0", "and so on", "I see, 1"] for place in ("Lisbon", "Xanadu"))
    assert now["threads"] == {"of Lisbon": lisbon, "of Xanadu": xanadu}
    assert now["working memory"] == {"Lisbon": 1, "Xanadu": 1, "city": "Xanadu", "seen": ["Xanadu"]}
    assert now["recall"] == {"of Lisbon", "of Xanadu"}
    assert now["files"] == ["/Lisbon.md", "/Xanadu.md"]
    assert keys_with(raw, prefix, GUEST) == []
    assert of(everything(raw, prefix), THIRD) | of(everything(raw, prefix), "Oslo") == third
    again = memory.users.merge(GUEST, into=USER)
    assert again.threads == 0
    assert known(memory) == now


class Person(BaseModel):
    name: str | None = None
    likes: list[str] = Field(default=[], max_length=3)
    home: dict[str, str] = {}


TEMPLATE = "# You\n- Name:\n- City:\n"
FULL = "# You\n- Name: M.\n- City: Bonn\n- likes tea\n- 10:30 tea\n- 10:45 fog\n"
DOCUMENTS: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {  # options, the guest's, the user's, and both
    "fields": (
        {"schema": Person},
        {"name": "M.", "likes": ["tea", "fog"], "home": {"city": "Bonn", "street": "A"}},
        {"name": "Maya", "likes": ["fog"], "home": {"city": "Rome"}},
        {"name": "Maya", "likes": ["fog"], "home": {"city": "Rome", "street": "A"}},
    ),
    "null": (
        {"schema": {"type": "object"}},
        {"name": "M.", "home": {"city": "Bonn"}},
        {"name": None, "home": {"city": None}, "age": 7},
        {"name": "M.", "home": {"city": "Bonn"}, "age": 7},
    ),
    "a template": ({"template": TEMPLATE}, FULL, "# You\n- Name: Maya\n- City:\n", FULL.strip().replace("M.", "Maya")),
    "a label under two headings": (
        {"template": "# Work\n- City:\n# Home\n- City:"},
        "# Work\n- City: Rome\n# Home\n- City:",
        "# Work\n- City:\n# Home\n- City: Oslo",
        "# Work\n- City:\n# Home\n- City: Oslo\n- City: Rome",
    ),
    "a label that comes several times": (
        {"template": "- Fact:"},
        "- Fact: likes tea\n- Fact: plays chess",
        "- Fact: has a dog\n- Fact: likes tea",
        "- Fact: has a dog\n- Fact: likes tea\n- Fact: plays chess",
    ),
    "free text": ({"template": ""}, "likes tea", "has a dog", "has a dog\n\nlikes tea"),
    "another format": ({"template": TEMPLATE}, '{"name": "M."}', "# You\n- Name: Maya", "# You\n- Name: Maya"),
}


@pytest.mark.parametrize("form", DOCUMENTS)
def test_what_the_user_has_stays_and_the_guest_fills_what_is_empty(make_memory: Make, form: str) -> None:
    how, guest, user, both = DOCUMENTS[form]
    memory = make_memory(working_memory=WorkingMemoryOptions(**how))
    part = memory.working_memory
    part.update(guest, user_id=GUEST, mode="replace")
    part.update(user, user_id=USER, mode="replace")
    assert memory.users.merge(GUEST, into=USER).working_memories == 1
    after = part.get(user_id=USER).value
    assert (after.model_dump() if isinstance(after, Person) else after) == both
    assert part.revisions(user_id=GUEST) == []


def test_a_working_memory_that_may_not_be_stops_the_merge_before_it_begins(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template="", max_bytes=30))
    for name, likes in ((GUEST, ["tea", "fog"]), (USER, ["wind", "snow"])):
        memory.working_memory.update(f"likes {likes}", user_id=name)
        memory.threads.create(user_id=name, thread_id=name)
    before = everything(raw, prefix)
    with pytest.raises(WorkingMemoryValidationError) as caught:
        memory.users.merge(GUEST, into=USER)
    assert not hasattr(caught.value, "__notes__")
    assert everything(raw, prefix) == before
    memory.history.append([HumanMessage("I go on")], thread_id=GUEST, user_id=GUEST)
    memory.working_memory.clear(user_id=GUEST)
    assert memory.users.merge(GUEST, into=USER).threads == 1

    bare = make_memory()
    memory.working_memory.update("likes tea", user_id=THIRD)
    with pytest.raises(OptionError, match="working_memory"):  # which has none
        bare.users.merge(THIRD, into=USER)
    assert memory.working_memory.get(user_id=THIRD).text == "likes tea"
    assert bare.users.merge("nobody", into=USER).working_memories == 0


def test_a_merge_goes_on_wherever_it_was_interrupted(make_memory: Make) -> None:
    whole: dict[str, Any] = {}
    with EmbeddedRedis() as empty, redis.Redis.from_url(empty.url) as raw:
        for after in range(0, 100, 1 if NIGHTLY else 3):
            prefix = f"p{after}"
            memory = make_memory(empty.url, key_prefix=prefix, **options())
            with memory:
                live(memory)
                if ends_within(memory, merge(memory._core.state, GUEST, USER, "first"), after):
                    assert after > 5
                    break
                if after:
                    with pytest.raises(UserDeletedError, match="deleted or merged"):
                        memory.history.append([HumanMessage("x")], thread_id="new", user_id=GUEST)
                    with pytest.raises(UserDeletedError):
                        memory.working_memory.update({"x": 1}, user_id=GUEST)
                    with pytest.raises(UserDeletedError):
                        memory.users.merge(GUEST, into=THIRD)
                memory.users.merge(GUEST, into=USER)
                now = known(memory)
                whole = whole or now
                assert now == whole
                assert keys_with(raw, prefix, GUEST) == []
                assert known(memory, THIRD)["threads"].keys() == {"of Oslo"}
            raw.delete(*raw.scan_iter(f"{prefix}:*"))


def test_what_is_refused_during_a_merge_takes_nothing_away(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    tea: Any = HumanMessage("tea", id="q")
    later = [HumanMessage("more", id="q2"), AIMessage("yes", id="a2")]
    ids: Any = {"thread_id": "t", "user_id": "guest"}
    plain.history.append([tea, AIMessage("noted", id="a")], **ids)
    records = list(plain.users.export("guest"))
    raw.set(f"{prefix}:tombstone:{{guest}}", "merge/u/1")
    for write in (
        lambda: plain.history.append([tea, AIMessage("new")], **ids),
        lambda: plain.history.append([HumanMessage("milk", id="q")], **ids),
        lambda: plain.save_turn(later, **ids),
        lambda: plain.users.load(records),
    ):
        with pytest.raises(UserDeletedError):
            write()
        assert [message.id for message in plain.history.messages("t")] == ["q", "a"]
    plain.users.merge("guest", into="u")
    plain.save_turn(later, thread_id="t", user_id="u")
    assert [message.id for message in plain.history.messages("t")] == ["q", "a", "q2", "a2"]


STAGES = range(30) if NIGHTLY else range(0, 16, 2)


def merging(memory: Memory, stage: int, event: Callable[[], object]) -> Any:
    """Merge, with something else in front of one of the effects; or behind all of them."""
    steps, plan = count(), merge(memory._core.state, GUEST, USER, "first")
    done = memory._core.run(meanwhile(plan, lambda _: next(steps) == stage and event()))
    if next(steps) <= stage:
        event()
    return done


@pytest.fixture
def kept(make_memory: Make) -> Memory:
    """A guest with a thread, a file and two fields of working memory, and a user with one."""
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY))
    talk(memory, "I live in Lisbon", "I like Ginjinha", thread="g", owner=GUEST)
    memory.files.write("/a.md", "the guest's", user_id=GUEST)
    memory.working_memory.update({"city": "Lisbon", "drink": "Ginjinha"}, user_id=GUEST)
    talk(memory, "I am Maya", thread="u", owner=USER)
    memory.working_memory.update({"name": "Maya"}, user_id=USER)
    return memory


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_of_the_guest_wins_over_the_merge(kept: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    """What the user has by then is the user's; nothing else is left."""
    with suppress(UserDeletedError):
        merging(kept, stage, lambda: kept.users.delete(GUEST))
    assert keys_with(raw, prefix, GUEST) == []
    thread = kept.threads.get("g")
    assert thread is None or thread.user_id == USER
    kept.users.merge(GUEST, into=USER)
    kept.history.append([HumanMessage("x")], thread_id="again", user_id=GUEST)


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_of_the_user_wins_over_the_merge(kept: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    tombstone = f"{prefix}:tombstone:{{{USER}}}"
    with suppress(UserDeletedError):
        merging(kept, stage, lambda: raw.set(tombstone, "a deletion"))
    assert raw.get(tombstone) == b"a deletion"
    guest = kept.threads.get("g")
    assert kept.users.delete(USER).verified
    assert keys_with(raw, prefix, USER) == []
    assert guest is not None
    if guest.user_id == GUEST:  # then nobody waits for a merge that cannot go on
        kept.history.append([HumanMessage("I go on")], thread_id="g", user_id=GUEST)
    kept.users.merge(GUEST, into=USER)
    assert keys_with(raw, prefix, GUEST) == []


@pytest.mark.parametrize("stage", [0, 1, 2, 6, 9])
def test_what_the_user_writes_meanwhile_stays(kept: Memory, stage: int) -> None:
    def event() -> None:
        kept.working_memory.update({"pet": "cat"}, user_id=USER)
        kept.history.append([HumanMessage("more")], thread_id="u", user_id=USER)

    merging(kept, stage, event)
    found = kept.working_memory.get(user_id=USER).value
    assert found == {"city": "Lisbon", "drink": "Ginjinha", "name": "Maya", "pet": "cat"}
    assert kept.history.messages("u")[-1].text == "more"


@pytest.mark.parametrize("stage", STAGES)
def test_what_the_guest_writes_meanwhile_is_refused_or_kept(kept: Memory, stage: int) -> None:
    told: list[str] = []

    def event() -> None:
        writes: dict[str, Callable[[], object]] = {
            "late": lambda: kept.history.append([HumanMessage("late")], thread_id="late", user_id=GUEST),
            "more": lambda: kept.history.append([HumanMessage("more")], thread_id="g", user_id=GUEST),
            "pet": lambda: kept.working_memory.update({"pet": "cat"}, user_id=GUEST),
            "file": lambda: kept.files.write("/late.md", "x", user_id=GUEST),
        }
        for name, write in writes.items():
            with suppress(UserDeletedError, ThreadOwnershipError):
                write()
                told.append(name)

    merging(kept, stage, event)
    kept.users.merge(GUEST, into=USER)  # who came after it has begun anew
    found: set[str] = {message.text for thread in ("g", "late") for message in kept.history.messages(thread)}
    found |= {*kept.working_memory.get(user_id=USER).value}
    found |= {"file" for one in kept.files.glob("**", user_id=USER) if one.path == "/late.md"}
    assert {*told} == found & {"late", "more", "pet", "file"}
