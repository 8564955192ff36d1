"""What a deletion takes from a log, and what it gives back: only lines that cite the message go, and what they cite beside is raw again."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import Memory, ObservationOptions, RecallOptions
from langchain_workingmem._text.ranges import numbers_in, parse_ranges
from langchain_workingmem.models import Observation, ObservationUsage
from langchain_workingmem.observations.log import read_observation
from langchain_workingmem.options import Scope
from tests.helpers.archives import unsealed
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY
from tests.observations.observers import Echo, elements
from tests.helpers.types import Make
from tests.observations.checks import everything

IDS: Any = {"thread_id": "t", "user_id": "u"}
SCOPES: tuple[Scope, ...] = ("thread", "user")
each_scope = pytest.mark.parametrize("scope", SCOPES)
END = ["q0", "a0"]
CANARY = re.compile(rb"canary\d+x")


class Condensing(Echo):
    """Writes a line for so many messages, with a word of each; and one for four lines, with the words of the first."""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        self.calls += 1
        found, lines = elements(messages), []
        is_log = found[0][0] == "observation"
        size = 4 if is_log else self.together
        for start in range(0, len(found), size):
            group = found[start : start + size]
            words = re.findall("canary[0-9]+x", " ".join(text for *_, text in (group[:1] if is_log else group)))
            lines.append(f"- [{','.join(str(number) for _, number, _ in group)}] {' '.join(words)} noted")
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])


def observing(make_memory: Make, scope: Scope = "thread", together: int = 3, **more: Any) -> Memory:
    settings = {
        "message_tokens": 50,
        "keep_tokens": 0,
        "batch_tokens": 400,
        "observation_tokens": 10**6,
        "background": False,
        "model": Condensing(together=together),
        **more,
    }
    recall: dict[str, Any] = (
        {"embeddings": WordEmbeddings(), "recall": RecallOptions()} if settings.pop("recall", False) else {}
    )
    return make_memory(observations=ObservationOptions(scope=scope, **settings), **recall)


def word(at: int) -> str:
    return f"canary{at}x"


def talk(memory: Memory, count: int, first: int = 0, words: int = 0) -> None:
    """Store messages, each with a word of its own."""
    said = [
        (AIMessage if at % 2 else HumanMessage)(f"{word(at)} {'word ' * words}".strip(), id=f"m{at}")
        for at in range(first, first + count)
    ]
    memory.history.append(said, **IDS)


def observe(memory: Memory) -> ObservationUsage:
    """Observe all but a last turn, which comes to the end."""
    memory.history.delete(END, **IDS)
    memory.history.append([HumanMessage("is that all?", id="q0"), AIMessage("it is", id="a0")], **IDS)
    return memory.observations.observe("t", user_id="u").usage


def raw_ids(memory: Memory) -> list[str]:
    """Return the messages that are shown as they are, but for the last turn."""
    shown = memory.context("and now?", **IDS).messages
    return [str(one.id) for one in shown if str(one.id)[:1] in "maq" and len(str(one.id)) < 5 and one.id not in END]


def stored_lines(memory: Memory, raw: redis.Redis, thread: str = "t") -> dict[int, Observation]:
    found: Any = raw
    fields = found.hgetall(memory._core.state.keys.of(thread).observations)
    numbers = [int(name[2:]) for name in fields if name.startswith(b"o:")]
    return {number: read_observation(number, fields[f"o:{number}".encode()]) for number in numbers}


def citing(memory: Memory, raw: redis.Redis, thread: str = "t") -> list[list[str]]:
    """Return what each line cites, those behind condensed lines instead of these."""
    stored, found = stored_lines(memory, raw, thread), list[list[str]]()

    def add(one: Observation) -> None:
        if not one.parts:
            found.append([id for _, id in one.sources])
        for number in numbers_in(parse_ranges(one.parts)):
            add(stored[number])

    for one in memory.observations.get(thread_id=thread, user_id="u"):
        add(stored[one.number])
    return found


def beside(memory: Memory, raw: redis.Redis, id: str) -> set[str]:
    """Return what the lines that cite a message cite beside."""
    return {other for ids in citing(memory, raw) if id in ids for other in ids} - {id}


def check_coverage(memory: Memory, raw: redis.Redis) -> None:
    """Each message reaches the model one time."""
    ids = [str(one.id) for one in memory.history.messages("t")]
    assert sorted([*raw_ids(memory), *END, *(id for line in citing(memory, raw) for id in line)]) == sorted(ids)


def words_left(raw: redis.Redis, prefix: str) -> set[str]:
    found = everything(raw, f"{prefix}:*")
    return {one.decode() for data in found.values() for one in CANARY.findall(data)}


# ---------------------------------------------------------------------- condensed lines


def condensed(make_memory: Make, scope: Scope = "thread", count: int = 240, **more: Any) -> Memory:
    """Observe a long conversation, until lines stand for lines that stand for lines."""
    memory = observing(make_memory, scope, observation_tokens=200, **more)
    for first in range(0, count, 60):
        talk(memory, 60, first=first)
        observe(memory)
    return memory


@each_scope
def test_a_deleted_message_takes_only_the_lines_that_cite_it_along(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: Scope
) -> None:
    memory = condensed(make_memory, scope)
    before = memory.observations.get(**IDS)
    hit = next(one for one in before if one.level >= 3)
    deleted = hit.sources[0][1]
    others = beside(memory, raw, deleted)
    assert 0 < len(others) < 3
    memory.history.delete([deleted], **IDS)
    after = memory.observations.get(**IDS)
    assert f"canary{deleted[1:]}x" not in words_left(raw, prefix)
    left = [one for one in before if one != hit]
    assert [one for one in after if one in left] == left
    finer = [one for one in after if one not in left]
    assert finer  # what stood behind it, but for what cites the message
    assert max(one.level for one in finer) < hit.level
    assert {*raw_ids(memory)} == others
    check_coverage(memory, raw)
    usage = observe(memory)
    assert raw_ids(memory) == []
    assert usage.failures == 0
    check_coverage(memory, raw)


@each_scope
def test_an_edited_message_behind_a_condensed_line_is_observed_again(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: Scope
) -> None:
    memory = condensed(make_memory, scope)
    memory.history.update([HumanMessage("canary999x", id="m8")], **IDS)
    assert word(8) not in words_left(raw, prefix)
    assert raw_ids(memory) == ["m6", "m7", "m8"]
    check_coverage(memory, raw)
    observe(memory)
    assert raw_ids(memory) == []
    check_coverage(memory, raw)


@each_scope
def test_a_branch_that_leaves_the_middle_of_a_condensed_line_keeps_the_rest(
    make_memory: Make, raw: redis.Redis, scope: Scope
) -> None:
    memory = condensed(make_memory, scope)
    at = 31
    others = {f"m{number}" for number in range(at) if f"m{number}" in beside(memory, raw, f"m{at}")}
    edited = [*memory.history.messages("t")[:at], HumanMessage("other", id="q1")]
    context = memory.context(edited, **IDS)
    assert context.observations is not None
    words = {word for one in context.observations for word in one.text.split()}
    assert not words & {word(number) for number in range(at, 240)}
    cited = {id for one in context.observations for _, id in one.sources}
    assert {str(one.id) for one in context.messages} - cited == {*others, "q1"} | {
        str(one.id) for one in context.messages[:1]
    }
    assert cited | others == {f"m{number}" for number in range(at)}
    memory.save_turn([*context.messages, AIMessage("yes", id="a1")], **IDS)
    assert {*raw_ids(memory)} == {*others, "q1", "a1"}
    observe(memory)
    assert not raw_ids(memory)


@pytest.mark.parametrize("how", ["clone", "import"])
def test_a_copy_falls_back_to_finer_lines_too(make_memory: Make, raw: redis.Redis, prefix: str, how: str) -> None:
    memory = condensed(make_memory)
    before = [(one.text, one.level) for one in memory.observations.get(**IDS)]
    thread, deleted = "t", "m5"
    if how == "import":
        records = unsealed(memory.users.export("u"))
        memory.users.delete("u")
        memory.users.load(records)
    else:
        copy = memory.threads.clone("t", new_thread_id="c", user_id="u")
        thread, deleted = "c", copy.message_ids["m5"]
    ids: Any = {"thread_id": thread, "user_id": "u"}
    assert [(one.text, one.level) for one in memory.observations.get(**ids)] == before
    pending = memory.observations.get(**ids).pending_tokens
    memory.history.delete([deleted], **ids)
    after = memory.observations.get(**ids)
    assert not any(re.search(rf"\b{word(5)}\b", one.text) for one in after)
    assert len(after) > len(before)
    assert 0 < after.pending_tokens - pending < 60
    if how == "import":
        assert word(5) not in words_left(raw, prefix)


def test_a_copy_of_some_messages_has_the_lines_that_come_from_only_these(make_memory: Make, raw: redis.Redis) -> None:
    memory = condensed(make_memory)
    left = {"m4", "m100"}
    others = {other for one in left for other in beside(memory, raw, one)}
    some = {f"m{at}" for at in range(240)} - left
    copy = memory.threads.clone("t", new_thread_id="c", user_id="u", message_ids=some)
    cited = {id for line in citing(memory, raw, "c") for id in line}
    assert cited == {copy.message_ids[id] for id in some - others}
    context = memory.context("and now?", thread_id="c", user_id="u")
    assert {copy.message_ids[id] for id in others} <= {one.id for one in context.messages}


# ---------------------------------------------------------------------- no word of what is deleted


def lives() -> int:
    return 60 if NIGHTLY else 1


@pytest.mark.parametrize("seed", range(lives()))
def test_no_key_has_a_word_of_what_is_deleted_or_edited(
    make_memory: Make, raw: redis.Redis, prefix: str, seed: int
) -> None:
    """With condensed lines, shared citations, corrections, old revisions, copies and documents of recall."""
    draw = random.Random(seed)
    scope: Scope = draw.choice(SCOPES)
    model = _Sharing(together=draw.choice([1, 3, 40]), shared=draw.random() < 0.5)
    settings: Any = {
        "model": model,
        "batch_tokens": draw.choice([100, 400, 4000]),
        "observation_tokens": draw.choice([60, 200, 900]),
    }
    options = ObservationOptions(scope=scope, message_tokens=50, keep_tokens=0, background=False, **settings)
    memory = make_memory(observations=options, embeddings=WordEmbeddings(), recall=RecallOptions())
    stored: dict[str, str] = {}
    number = 0
    for _ in range(10):
        words = draw.choice([0, 3, 30, 400])
        for _ in range(draw.randint(2, 14)):
            role = AIMessage if number % 2 else HumanMessage
            stored[f"m{number}"] = word(number)
            memory.history.append([role(f"{word(number)} {'word ' * words}", id=f"m{number}")], **IDS)
            number += 1
        if draw.random() < 0.8:
            observe(memory)
        log = memory.observations.get(**IDS).observations
        for change in draw.sample(["forget", "delete", "edit"], 2):
            some = draw.sample(sorted(stored), min(len(stored), draw.choice([1, 1, 3])))
            if change == "forget" and log:
                memory.observations.delete(draw.choice(log).id, **IDS)
            elif change == "delete":
                memory.history.delete(some, **IDS)
                for id in some:
                    del stored[id]
            elif change == "edit":
                for id in some:
                    stored[id] = word(number := number + 1)
                    memory.history.update([HumanMessage(stored[id], id=id)], **IDS)
            log = memory.observations.get(**IDS).observations
            assert words_left(raw, prefix) <= {*stored.values()}
            shown = {str(one.id) for one in memory.context("and now?", **IDS).messages}
            twice = {id for line in citing(memory, raw) for id in line} & shown
            assert not twice


class _Sharing(Condensing):
    """May cite the first message of the next line, too."""

    shared: bool = False

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        result = super()._generate(messages)
        if self.shared:
            message = result.generations[0].message
            lines = str(message.content).split("\n")
            last = max(int(number) for line in lines for number in re.findall(r"\d+", line.partition("]")[0]))
            joined = [
                re.sub(r"(\d+)\]", lambda found: f"{found[1]},{min(last, int(found[1]) + 1)}]", line, count=1)
                for line in lines
            ]
            message.content = "\n".join(joined)
        return result
