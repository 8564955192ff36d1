"""Filters of metadata find what a plain Python filter finds, whatever happened to threads and messages before."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError, RecallOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.types import Make

FILTERABLE, THREAD_FILTERS = ("kind", "rank", "a b"), ("project", "priority", "ü.x", "a\0b")
ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}

scalars = st.sampled_from([None, True, False, 0, 1, 2, 2.5, -1, 1.0, "1", "10", "a", "b,c", "ü|", "", 2**53])
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from(["x", "y"]), scalars, max_size=2)
ordered = scalars.filter(lambda value: value is not None)
conditions = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["$eq", "$ne"], values),
        **dict.fromkeys(["$in", "$nin"], st.lists(values, max_size=3)),
        **dict.fromkeys([*ORDER], ordered),
        "$exists": st.booleans(),
        "$not": st.fixed_dictionaries({}, optional={"$in": st.lists(scalars, max_size=2), "$gt": ordered}).filter(bool),
    },
).filter(bool)


def metadata_of(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), values, max_size=3)


def filters_of(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        st.dictionaries(st.sampled_from(keys), scalars | conditions | conditions, max_size=2),
        lambda inner: (
            st.fixed_dictionaries(
                {},
                optional={
                    "$and": st.lists(inner, min_size=1, max_size=2),
                    "$or": st.lists(inner, min_size=1, max_size=2),
                },
            )
            | st.fixed_dictionaries({"$not": inner.filter(bool)})
        ),
        max_leaves=4,
    )


GONE: Any = object()


def number(value: Any) -> float | None:
    try:
        return None if value is None or isinstance(value, list | dict) else float(value)
    except ValueError:
        return None


def holds(value: Any, sign: str, operand: Any) -> bool:
    """Compare as the documentation says: written apart from the package."""
    plain = None if value is GONE else value
    match sign:
        case "$exists":
            return (value is not GONE) is bool(operand)
        case "$not":
            return not all(holds(value, *one) for one in operand.items())
        case "$eq":
            return bool(plain == operand)
        case "$ne":
            return bool(plain != operand)
        case "$in":
            return plain in operand
        case "$nin":
            return plain not in operand
    if number(plain) is not None and number(operand) is not None:
        return bool(ORDER[sign](number(plain), number(operand)))
    return isinstance(plain, str) and isinstance(operand, str) and bool(ORDER[sign](plain, operand))


def passes(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    for key, part in wanted.items():
        if key == "$and":
            found = all(passes(metadata, one) for one in part)
        elif key == "$or":
            found = any(passes(metadata, one) for one in part)
        elif key == "$not":
            found = not passes(metadata, part)
        else:
            signs = part if isinstance(part, dict) else {"$eq": part}
            found = all(holds(metadata.get(key, GONE), *one) for one in signs.items())
        if not found:
            return False
    return True


steps = st.lists(
    st.tuples(st.just("update"), st.integers(0, 3), metadata_of(*THREAD_FILTERS))
    | st.tuples(st.sampled_from(["transfer", "clone"]), st.integers(0, 3), st.none())
    | st.tuples(st.just("edit"), st.integers(0, 9), metadata_of(*FILTERABLE))
    | st.tuples(st.just("reindex"), st.none(), st.none()),
    max_size=3,
)


class World:
    """A memory, and what it has to hold."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.owners: dict[str, str] = {}
        self.messages: dict[str, tuple[str, dict[str, Any]]] = {}
        self.texts: dict[str, str] = {}

    def begin(self, threads: list[dict[str, Any]], messages: list[tuple[int, dict[str, Any]]]) -> None:
        for number, metadata in enumerate(threads):
            self.memory.threads.create(thread_id=f"t{number}", user_id="u", metadata=metadata)
            self.owners[f"t{number}"] = "u"
        for number, (thread, metadata) in enumerate(messages):
            self.write(f"m{number}", f"t{thread % len(threads)}", metadata)

    def write(self, id: str, thread: str, metadata: dict[str, Any]) -> None:
        message = HumanMessage(f"jam {id}", id=id, additional_kwargs={"metadata": metadata})
        self.memory.history.append([message], thread_id=thread, user_id=self.owners[thread])
        self.messages[id], self.texts[id] = (thread, metadata), message.text

    def do(self, what: str, at: Any, metadata: Any) -> None:
        threads, ids = [*self.owners], [*self.messages]
        thread = threads[(at or 0) % len(threads)]
        match what:
            case "update":
                self.memory.threads.update(thread, metadata=metadata)
            case "transfer":
                to = "v" if self.owners[thread] == "u" else "u"
                self.memory.threads.transfer(thread, user_id=self.owners[thread], to=to)
                self.owners[thread] = to
            case "clone":
                copy = self.memory.threads.clone(thread)
                self.owners[copy.thread.id] = self.owners[thread]
                for old, new in copy.message_ids.items():
                    self.messages[new], self.texts[new] = (copy.thread.id, self.messages[old][1]), self.texts[old]
            case "edit" if ids:
                self.write(ids[at % len(ids)], self.messages[ids[at % len(ids)]][0], metadata)
            case "reindex":
                self.memory.recall.reindex(force=True, progress=False)

    def check(self, wanted: dict[str, Any], of_threads: dict[str, Any]) -> None:
        stored = {one.id: one.metadata for one in self.memory.threads.list().items}
        mine = {id for id, owner in self.owners.items() if owner == "u"}
        both = {id: {**stored[thread], **own} for id, (thread, own) in self.messages.items() if thread in mine}
        found = self.memory.recall.search("jam", user_id="u", top_k=99, message_range=0, metadata=wanted)
        expected = {self.texts[id] for id, own in both.items() if passes(own, wanted)}
        assert {hit.message.text for hit in found.hits} == expected  # a copy has the same text, which comes once
        page = self.memory.threads.list(user_id="u", metadata=of_threads, limit=2)
        listed = [one.id for one in page]
        while page.next_cursor:
            page = self.memory.threads.list(user_id="u", metadata=of_threads, limit=2, cursor=page.next_cursor)
            listed += [one.id for one in page]
        chosen = {id for id in mine if passes(stored[id], of_threads)}
        assert (sorted(listed), page.total) == (sorted(chosen), len(chosen))


@examples(30, server=True)
@given(
    threads=st.lists(metadata_of(*THREAD_FILTERS), min_size=1, max_size=4),
    messages=st.lists(st.tuples(st.integers(0, 3), metadata_of(*FILTERABLE)), max_size=8),
    steps=steps,
    wanted=st.lists(
        st.tuples(filters_of(*FILTERABLE), filters_of(*THREAD_FILTERS)).map(lambda both: {"$and": [*both]}),
        min_size=3,
        max_size=3,
    ),
    of_threads=st.lists(filters_of(*THREAD_FILTERS), min_size=3, max_size=3),
)
def test_a_filter_finds_what_python_finds(
    make_memory: Make, threads: Any, messages: Any, steps: Any, wanted: Any, of_threads: Any
) -> None:
    options = RecallOptions(filterable=FILTERABLE)
    memory = make_memory(embeddings=WordEmbeddings(), recall=options, thread_filters=THREAD_FILTERS)
    world = World(memory)
    try:
        world.begin(threads, messages)
        for step in steps:
            world.do(*step)
        for one, other in zip(wanted, of_threads, strict=True):
            world.check(one, other)
    finally:
        for owner in ("u", "v"):
            memory.users.delete(owner)
        memory.close()


@pytest.fixture
def projects(make_memory: Make) -> Memory:
    recall = RecallOptions(filterable=("topic",))
    return make_memory(embeddings=WordEmbeddings(), recall=recall, thread_filters=("projectId", "priority"))


def test_a_condition_that_mixes_keys_of_threads_and_messages_is_refused(projects: Memory) -> None:
    wanted = {"$or": [{"topic": "jam"}, {"priority": {"$gt": 4}}]}
    with pytest.raises(OptionError, match=r"names \['priority'\] of threads.*by \$and"):
        projects.recall.search("jam", user_id="u", metadata=wanted)


def test_a_key_that_is_not_declared_or_an_operator_that_is_unknown_is_refused_by_every_face(
    projects: Memory, make_memory: Make
) -> None:
    calls: list[Callable[[dict[str, Any]], object]] = [
        lambda wanted: projects.recall.search("jam", user_id="u", metadata=wanted),
        lambda wanted: projects.context("jam", thread_id="t", user_id="u", metadata=wanted),
        lambda wanted: projects.threads.list(metadata=wanted),
        lambda wanted: projects.tools(metadata=wanted),
        lambda wanted: projects.as_retriever(user_id="u", metadata=wanted).invoke("jam"),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"'owner'.*thread_filters=\.\.\."):
            call({"$not": {"owner": {"$gt": 1}}})
        with pytest.raises(OptionError, match=r"metadata is not JSON \(set"):
            call({"priority": {"ab", "cd"}})
        with pytest.raises(OptionError, match=r"metadata.*unknown operator.* here: use one of \$"):
            call({"priority": {"$regex": "a"}})
    assert projects.threads.list(metadata={"owner": 1}).total == 0
    with pytest.raises(OptionError, match=r"both name \['topic'\]: name each key once"):
        make_memory(
            embeddings=WordEmbeddings(), recall=RecallOptions(filterable=("topic",)), thread_filters=("topic", "x")
        )
    with pytest.raises(OptionError, match=r"thread_filters names '\$or': use strings"):
        make_memory(thread_filters=("$or",))


def test_nothing_is_lost_where_few_of_many_pass(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(filterable=("rank",), message_range=0))
    messages = [HumanMessage(f"jam {at}", id=str(at), additional_kwargs={"rank": at}) for at in range(1300)]
    memory.history.append(messages, thread_id="t", user_id="u")
    found = memory.recall.search("jam 7", user_id="u", metadata={"rank": {"$gte": 1298}})
    assert {hit.message.id for hit in found.hits} == {"1298", "1299"}
