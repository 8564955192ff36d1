"""What was said last holds, whatever the keeper reads first; what is deleted is shown nowhere from then on."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory, WorkingMemoryOptions, keeping
from langchain_workingmem.keeping.values import leaves
from tests.helpers.canaries import keys_with
from tests.helpers.crashes import ends_within
from tests.helpers.examples import NIGHTLY
from tests.helpers.types import Make
from tests.keeping.keepers import TEMPLATE, Filling, Setting, kept_by, say, shown

FORMS: list[dict[str, Any]] = [{}, {"template": TEMPLATE}]
each_form = pytest.mark.parametrize("form", FORMS, ids=["schema", "template"])


def keeper_of(form: dict[str, Any]) -> Any:
    return Filling() if form else Setting()


def values(memory: Memory, text: str) -> dict[str, Any]:
    found = leaves(memory._core.state.remembering.format, text)
    return {path[1:]: leaf.value for path, leaf in found.items()}


@each_form
@pytest.mark.parametrize("seed", range(300 if NIGHTLY else 8))
def test_lives_of_values(make_memory: Make, raw: redis.Redis, prefix: str, form: dict[str, Any], seed: int) -> None:
    """Random threads say values; keepers of two processes read them in any order; messages are deleted meanwhile."""
    chance = random.Random(seed)
    user, threads = f"u{seed}", [f"a{seed}", f"b{seed}", f"c{seed}"]
    both = [make_memory(**kept_by(keeper_of(form), **form)) for _ in range(2)]
    facts: list[list[Any]] = []  # thread, id, name, value, whether it is there
    unread: set[str] = set()
    for at in range(10):
        memory, thread = chance.choice(both), chance.choice(threads)
        name, value = chance.choice(["city", "job", "pet"]), f"kw{seed}x{at}" if chance.random() < 0.85 else "gone"
        say(memory, f"{name} is {value}", f"m{at}", thread, user)
        facts.append([thread, f"m{at}", name, value, True])
        unread.add(thread)
        if chance.random() < 0.4:
            chosen = chance.choice(sorted(unread))
            chance.choice(both).working_memory.keep(chosen, user_id=user)
            unread.discard(chosen)
        if chance.random() < 0.3:
            one = chance.choice(facts)
            if one[4]:
                chance.choice(both).history.delete([one[1]], thread_id=one[0])
                one[4] = False
        gone = {one[3] for one in facts if not one[4]} - {"gone"}
        text = shown(chance.choice(both), thread, user)
        assert not [value for value in gone if f"{value}\n" in f"{text}\n" or f'"{value}"' in text], (at, text)
    # also what was made raw again, as a message in front of it was deleted
    for thread in sorted({one[0] for one in facts}):
        both[0].working_memory.keep(thread, user_id=user)
    for memory in both:
        memory.settled()
    wanted = {name: value for _, _, name, value, is_there in facts if is_there}
    wanted = {name: value for name, value in wanted.items() if value != "gone"}
    for memory in both:
        assert values(memory, shown(memory, threads[0], user)) == wanted
        memory.settled()
        assert values(memory, memory.working_memory.get(user_id=user).text) == wanted
    for *_, value, is_there in facts:
        if not is_there and value != "gone":
            assert keys_with(raw, prefix, f"{value}'") == keys_with(raw, prefix, f'{value}\\"') == []


@each_form
def test_a_process_that_is_killed_at_any_step_loses_nothing(
    make_memory: Make, raw: redis.Redis, form: dict[str, Any]
) -> None:
    """What it has written is shown by the next one, what it has not is read again."""
    other = make_memory(**kept_by(keeper_of(form), **form))
    after, is_over = 0, False
    while not is_over:
        memory, user = make_memory(**kept_by(keeper_of(form), **form)), f"u{after}"
        say(memory, "city is Oslo", f"m{after}", f"t{after}", user)
        is_over = ends_within(memory, keeping.keep(memory._core.state, f"t{after}", user), after)
        raw.hdel(other._core.state.keys.of(f"t{after}").rows, "lease:keeping")  # its time is over
        other.working_memory.keep(f"t{after}", user_id=user)
        assert values(other, shown(other, f"t{after}", user)) == {"city": "Oslo"}
        assert len(other.working_memory.get(user_id=user).history("/city")) == 1
        after += 1
    assert after > 8


def test_a_process_without_a_keeper_hides_what_is_gone(make_memory: Make) -> None:
    """Also one that knows neither the schema nor the template."""
    memory = make_memory(**kept_by(Setting()))
    plain = make_memory(working_memory=WorkingMemoryOptions(template=""))
    say(memory, "city is Oslo, job is baker", "m1")
    say(memory, "city is Rome", "m2")
    memory.working_memory.keep("t")
    assert json.loads(shown(plain)) == {"city": "Rome", "job": "baker"}
    plain.history.delete(["m2"], thread_id="t")
    assert json.loads(shown(plain)) == {"city": "Oslo", "job": "baker"}
    plain.settled()
    assert json.loads(plain.working_memory.get(user_id="u").text) == {"city": "Oslo", "job": "baker"}
    plain.threads.delete("t")
    assert shown(plain, "other") == ""


def test_a_process_without_the_options_keeps_a_document_that_is_large(make_memory: Make) -> None:
    fields: Any = {name: {"type": "string"} for name in ("city", "notes")}
    schema = {"type": "object", "properties": fields}
    memory = make_memory(**kept_by(Setting(), schema=schema, max_bytes=200_000))
    plain = make_memory(working_memory=WorkingMemoryOptions(template=""))
    say(memory, "city is Oslo", "m1")
    memory.working_memory.keep("t")
    memory.working_memory.update({"notes": "x" * 70_000}, user_id="u")
    plain.history.delete(["m1"], thread_id="t")
    assert json.loads(shown(plain)) == {"notes": "x" * 70_000}
    plain.settled()
    assert json.loads(memory.working_memory.get(user_id="u").text) == {"notes": "x" * 70_000}
