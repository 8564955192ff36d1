"""Nobody sees what belongs to somebody else, however alike their names are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.errors import ThreadOwnershipError
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY
from tests.helpers.models import own
from tests.helpers.odd_ids import NAMES, secret, secrets_in, tell

# Everybody is in the store; who asks, and whose neighbour. Nightly, everybody asks.
ASKING = list(pairwise([*NAMES, NAMES[0]]))[:: 1 if NIGHTLY else 6]
Make = Callable[..., Memory]


@pytest.fixture
def crowded(make_memory: Make) -> Memory:
    """A memory where everybody, in a thread of the same name, has told a secret. Its search is by vectors and by words."""
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(search="hybrid"))
    for name in NAMES:
        tell(memory, name)
    return memory


def test_no_reply_holds_the_secret_of_somebody_else(crowded: Memory) -> None:
    for name, other in ASKING:
        for query in ("what is the pin of mine", secret(other), other):
            for scope in ("user", "thread"):
                found = crowded.recall.search(
                    query,
                    user_id=name,
                    thread_id=name,
                    scope=scope,
                    top_k=50,
                    message_range=5,
                )
                assert secrets_in(found, found.messages, found.as_text(), found.to_documents()) == {name}
        assert secrets_in(crowded.recall.search("pin", thread_id=name, scope="thread", top_k=50)) == {name}
        assert secrets_in(crowded.recall.search("pin", thread_id=name, top_k=50)) == {name}
        assert secrets_in(crowded.context("the pin", thread_id=name, user_id=name, top_k=50)) == {name}
        context = crowded.context("the pin", thread_id=f"new thread of {name}"[:250], user_id=name, top_k=50)
        assert secrets_in(own(context.messages)) == set()
        assert secrets_in(context.messages, context.system, context.recalled) == {name}
        assert secrets_in(crowded.threads.list(user_id=name)) == {name}
        assert secrets_in(crowded.threads.list(user_id=name, metadata={"pin": "mine"})) == {name}
        assert secrets_in(crowded.history.for_user(name)) == {name}
        assert secrets_in(crowded.history.messages(name), crowded.history.page(name).items) == {name}


def test_a_thread_of_somebody_else_is_refused_everywhere(crowded: Memory) -> None:
    message = [HumanMessage("mine now", id="m0")]
    for name, other in ASKING:
        theirs = {"thread_id": name, "user_id": other}
        tries: list[tuple[Any, Any, dict[str, Any]]] = [
            (crowded.recall.search, "pin", theirs),
            (crowded.recall.search, "pin", {**theirs, "scope": "thread"}),
            (crowded.context, "the pin", theirs),
            (crowded.context, "", theirs),
            (crowded.save_turn, message, theirs),
            (crowded.history.append, message, theirs),
            (crowded.history.update, message, theirs),
            (crowded.history.delete, ["m0"], theirs),
            (crowded.history.messages, name, {"user_id": other}),
            (crowded.history.page, name, {"user_id": other}),
            (crowded.history.clear, name, {"user_id": other}),
            (crowded.threads.get, name, {"user_id": other}),
            (crowded.threads.delete, name, {"user_id": other}),
        ]
        for method, argument, more in tries:
            with pytest.raises(ThreadOwnershipError) as refusal:
                method(argument, **more)
            assert secrets_in(str(refusal.value)) == set()
        assert secrets_in(crowded.history.messages(name)) == {name}


def test_deleting_one_thread_leaves_those_with_similar_names(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    for name in NAMES:
        tell(memory, name, user="one owner")
    left = set(NAMES)
    for name in NAMES[::2]:
        assert memory.threads.delete(name)
        left.remove(name)
    found = memory.recall.search("the pin of mine", user_id="one owner", top_k=1000)
    assert secrets_in(found) == left
    assert secrets_in(memory.threads.list(user_id="one owner", limit=1000)) == left


@pytest.mark.parametrize("other", ["{p}:", "{p}.", "{p}-x", "{p}:vector", "{p}:thread", "x:{p}", "{p}0"])
def test_memories_with_similar_prefixes_do_not_see_each_other(make_memory: Make, prefix: str, other: str) -> None:
    options: dict[str, Any] = {"embeddings": WordEmbeddings(), "recall": RecallOptions()}
    ours = make_memory(**options)
    theirs = make_memory(**options, key_prefix=other.format(p=prefix))
    tell(ours, "a", user="same")
    tell(theirs, "b", user="same")
    for memory, name in ((ours, "a"), (theirs, "b")):
        assert secrets_in(memory.recall.search("pin", user_id="same", top_k=9)) == {name}
        assert secrets_in(memory.threads.list(user_id="same")) == {name}
        assert secrets_in(memory.history.for_user("same")) == {name}
