"""A guest becomes a user: all that the guest has is the user's afterwards, and nothing else has changed."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import Memory, OptionError, UserDeletedError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.users import merge
from tests.helpers.canaries import keys_with
from tests.helpers.crashes import ends_within
from tests.helpers.examples import NIGHTLY
from tests.helpers.threads import thread_of
from tests.helpers.types import Make
from tests.users.guests import GUEST, THIRD, USER, everything, known, live, options


def of(found: dict[str, Any], word: str) -> dict[str, str]:
    """Return the keys that hold a word, with what they hold."""
    return {key: value for key, value in found.items() if word in key or word in value}


# ---------------------------------------------------------------------- what moves


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


# ---------------------------------------------------------------------- working memory


class Person(BaseModel):
    name: str | None = None
    likes: list[str] = Field(default=[], max_length=3)
    home: dict[str, str] = {}


TEMPLATE = "# You\n- Name:\n- City:\n"
DOCUMENTS: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {
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
    "a template": (
        {"template": TEMPLATE},
        "# You\n- Name: M.\n- City: Bonn\n- likes tea\n",
        "# You\n- Name: Maya\n- City:\n",
        "# You\n- Name: Maya\n- City: Bonn\n- likes tea",
    ),
    "free text": ({"template": ""}, "likes tea", "has a dog", "has a dog\n\nlikes tea"),
    "another format": ({"template": TEMPLATE}, '{"name": "M."}', "# You\n- Name: Maya", "# You\n- Name: Maya"),
}


@pytest.mark.parametrize(("how", "guest", "user", "both"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_what_the_user_has_stays_and_the_guest_fills_what_is_empty(
    make_memory: Make, how: dict[str, Any], guest: Any, user: Any, both: Any
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(**how))
    part = memory.working_memory
    part.update(guest, user_id=GUEST, mode="replace")
    part.update(user, user_id=USER, mode="replace")
    report = memory.users.merge(GUEST, into=USER)
    after = part.get(user_id=USER)
    assert (after.value.model_dump() if isinstance(after.value, Person) else after.value) == both
    assert report.working_memories == 1
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


# ---------------------------------------------------------------------- interrupted


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


@pytest.mark.parametrize("whom", [GUEST, USER])
def test_a_deletion_that_is_under_way_refuses_the_merge(
    make_memory: Make, raw: redis.Redis, prefix: str, whom: str
) -> None:
    memory = make_memory()
    memory.threads.create(user_id=GUEST, thread_id="t")
    raw.set(f"{prefix}:tombstone:{{{whom}}}", "a deletion")
    with pytest.raises(UserDeletedError) as caught:
        memory.users.merge(GUEST, into=USER)
    assert (caught.value.user_id, raw.get(f"{prefix}:tombstone:{{{whom}}}")) == (whom, b"a deletion")
    assert thread_of(memory, "t").user_id == GUEST
    if whom == USER:
        memory.history.append([HumanMessage("x")], thread_id="t", user_id=GUEST)


def test_what_is_refused_during_a_merge_takes_nothing_away(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    plain.history.append([HumanMessage("tea", id="q"), AIMessage("noted", id="a")], thread_id="t", user_id="guest")
    records = list(plain.users.export("guest"))
    raw.set(f"{prefix}:tombstone:{{guest}}", "merge/u/1")
    for write in (
        lambda: plain.history.append([HumanMessage("tea", id="q"), AIMessage("new")], thread_id="t", user_id="guest"),
        lambda: plain.history.append([HumanMessage("milk", id="q")], thread_id="t", user_id="guest"),
        lambda: plain.users.load(records),
    ):
        with pytest.raises(UserDeletedError):
            write()
        assert [message.id for message in plain.history.messages("t")] == ["q", "a"]
