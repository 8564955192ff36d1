"""Nobody sees what belongs to somebody else, however alike their names are: no reply crosses, no call reaches over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions, ThreadOwnershipError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY, sample
from tests.helpers.models import own
from tests.helpers.odd_ids import NAMES, secret, secrets_in, tell
from tests.helpers.operations import OPERATIONS, Caller, options
from tests.helpers.types import Make

FEW = sample([name for at, name in enumerate(NAMES) if at % 3 < 2], 16)

# What these return holds the caller's own secret, so that a crossing would show; the others return less than that.
TELLING = {
    *("threads.create", "threads.get", "threads.list", "threads.update", "threads.clone", "threads.transfer"),
    *("threads.lineage", "threads.create (with working memory)", "history.messages (superseded)"),
    *("history.append", "save_turn", "history.update", "history.messages", "history.page", "history.for_user"),
    *("context", "recall.search", "as_retriever", "search_memory", "chat_history", "load_node"),
    *("working_memory.update", "working_memory.get", "working_memory.revisions", "working_memory.revert"),
    *("working_memory.keep", "working_memory.undo", "update_working_memory", "get_working_memory"),
    *("observations.observe", "observations.get", "observations.sources", "observations.delete"),
    *("files.read", "users.export"),
}


def callers(memory: Memory, runner: asyncio.Runner | None, names: list[str], shift: int) -> list[Caller]:
    """Callers whose user has the name of the thread of somebody else, if there is a shift."""
    return [
        Caller(memory=memory, runner=runner, thread=name, user=other, secret=secret(name))
        for name, other in zip(names, [*names[shift:], *names[:shift]], strict=True)
    ]


@pytest.mark.parametrize(("scope", "names", "shift"), [("user", FEW[::2], 0), ("thread", FEW[1::2], 1)])
def test_no_reply_of_any_operation_holds_the_secret_of_somebody_else(
    make_memory: Make, runner: asyncio.Runner | None, scope: Any, names: list[str], shift: int
) -> None:
    assert len(names) >= (40 if NIGHTLY else 8)
    everybody = callers(make_memory(**options(scope)), runner, names, shift)
    for name, operation in OPERATIONS.items():
        for caller in everybody:
            found = secrets_in(getattr(reply := operation.call(caller), "messages", ""), reply)
            expected = {caller.thread} if name in TELLING else set()
            assert found == expected, (name, caller.thread)
    deleted = [caller.memory.threads.get(caller.thread) for caller in everybody]
    assert deleted == [None] * len(names)


def test_what_one_does_leaves_the_others_as_they_were(make_memory: Make, runner: asyncio.Runner | None) -> None:
    memory = make_memory(**options())
    everybody = callers(memory, runner, FEW[::2], 1)
    before = list(OPERATIONS)[: list(OPERATIONS).index("threads.get")]
    for operation in before:
        for caller in everybody:
            OPERATIONS[operation].call(caller)

    def all_of(caller: Caller) -> list[Any]:
        return [
            memory.threads.get(caller.thread),
            memory.history.messages(caller.thread),
            memory.threads.list(user_id=caller.user),
            memory.working_memory.revisions(user_id=caller.user),
            memory.recall.search(caller.secret, user_id=caller.user).rows,
        ]

    active, passive = everybody[::2], everybody[1::2]
    seen = [all_of(caller) for caller in passive]
    for operation in list(OPERATIONS)[len(before) :]:
        for caller in active:
            OPERATIONS[operation].call(caller)
    assert [all_of(caller) for caller in passive] == seen


def reaching_over(stranger: Caller, scope: str) -> list[Callable[[], Any]]:
    """Calls on the thread of somebody else."""
    memory, thread, ids = stranger.memory, stranger.thread, stranger.ids
    user: Any = {"user_id": stranger.user}
    turn = [HumanMessage("mine now", id="m0")]
    state: Any = {"messages": turn}
    chat, noted = partial(memory.chat_history, thread, stranger.user), memory.working_memory
    calls: list[Callable[[], Any]] = [
        *(partial(memory.recall.search, "pin", **ids), partial(memory.recall.search, "pin", **ids, scope="thread")),
        *(partial(memory.context, "the pin", **ids), partial(memory.context, "", **ids)),
        *(partial(save, turn, **ids) for save in (memory.save_turn, memory.history.append, memory.history.update)),
        *(partial(memory.history.delete, ["m0"], **ids), partial(memory.recall.reindex, progress=False, **ids)),
        *(partial(read, thread, **user) for read in (memory.history.messages, memory.history.page, memory.threads.get)),
        *(partial(memory.history.clear, thread, **user), partial(memory.threads.delete, thread, **user)),
        *(partial(memory.threads.update, thread, title="mine", **user), partial(memory.threads.clone, thread, **user)),
        partial(memory.threads.transfer, thread, to="me", **user),
        partial(memory.threads.lineage, thread, **user),
        *(partial(stranger.invoke, node, state) for node in (memory.load_node(), memory.save_node())),
        lambda: stranger.invoke(memory.as_retriever(thread_id=thread, scope="thread", **user), "pin"),
        *(lambda: chat().add_messages(turn), lambda: chat().messages, lambda: chat().clear()),
    ]
    if scope == "thread":
        calls += [partial(call, **ids) for call in (noted.get, noted.clear, noted.revisions)]
        calls += [partial(noted.update, "mine", **ids), partial(noted.revert, 1, **ids)]
    return calls


@pytest.mark.parametrize(("scope", "names"), [("user", sample(NAMES[::3], 6)), ("thread", sample(NAMES[1::3], 6))])
def test_no_operation_reaches_into_the_thread_of_somebody_else(
    make_memory: Make, runner: asyncio.Runner | None, scope: Any, names: list[str]
) -> None:
    memory = make_memory(**options(scope))
    for caller in callers(memory, runner, names, 0):
        for name in ("threads.create", "history.append", "working_memory.update"):
            OPERATIONS[name].call(caller)
    for stranger in callers(memory, runner, names, 1):
        if scope == "thread":
            for tool, arguments in {"get": {}, "clear": {}, "update": {"memory": "mine"}}.items():
                assert "cannot be used in this conversation" in stranger.tool(f"{tool}_working_memory", **arguments)
        for attempt in reaching_over(stranger, scope):
            with pytest.raises(ThreadOwnershipError) as refusal:
                attempt()
            assert isinstance(refusal.value, PermissionError)
            assert secrets_in(str(refusal.value)) == set()
        name = stranger.thread
        assert secrets_in(memory.threads.get(name), *memory.history.messages(name)) == {name}
        assert secrets_in(memory.working_memory.get(thread_id=name)) == {name}


# Everybody is in the store; who asks, and whose neighbour. Nightly, everybody asks.
ASKING = list(pairwise([*NAMES, NAMES[0]]))[:: 1 if NIGHTLY else 9]


def test_no_reply_holds_the_secret_of_somebody_else(make_memory: Make) -> None:
    """Everybody has told a secret in a thread of the same name; the search is by vectors and by words."""
    crowded = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(search="hybrid"))
    for name in NAMES:
        tell(crowded, name)
    for name, other in ASKING:
        for query in ("what is the pin of mine", secret(other), other):
            for scope in ("user", "thread"):
                where: Any = {"user_id": name, "thread_id": name, "scope": scope}
                found = crowded.recall.search(query, top_k=50, message_range=5, **where)
                assert secrets_in(found, found.messages, found.as_text(), found.to_documents()) == {name}
        assert secrets_in(crowded.recall.search("pin", thread_id=name, scope="thread", top_k=50)) == {name}
        assert secrets_in(crowded.recall.search("pin", thread_id=name, top_k=50)) == {name}
        assert secrets_in(crowded.context("the pin", thread_id=name, user_id=name, top_k=50)) == {name}
        context = crowded.context("the pin", thread_id=f"new {name}"[:120], user_id=name, top_k=50)
        assert secrets_in(own(context.messages)) == set()
        assert secrets_in(context.messages, context.system, context.recalled) == {name}
        assert secrets_in(crowded.threads.list(user_id=name)) == {name}
        assert secrets_in(crowded.threads.list(user_id=name, metadata={"pin": "mine"})) == {name}
        assert secrets_in(crowded.history.for_user(name)) == {name}
        assert secrets_in(crowded.history.messages(name), crowded.history.page(name).items) == {name}


def test_memories_with_similar_prefixes_do_not_see_each_other(make_memory: Make, prefix: str) -> None:
    prefixes = ["{p}", "{p}:", "{p}.", "{p}-x", "{p}:vector", "{p}:thread", "x:{p}", "{p}0"]
    memories = {
        name: make_memory(embeddings=WordEmbeddings(), key_prefix=one.format(p=prefix))
        for name, one in zip(NAMES, prefixes, strict=False)
    }
    for name, memory in memories.items():
        tell(memory, name, user="same")
    for name, memory in memories.items():
        assert secrets_in(memory.recall.search("pin", user_id="same", top_k=9)) == {name}
        assert secrets_in(memory.threads.list(user_id="same")) == {name}
        assert secrets_in(memory.history.for_user("same")) == {name}
