"""Nobody sees what belongs to somebody else, however alike their names are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from langchain_workingmem import Memory, RecallOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY
from tests.helpers.models import own
from tests.helpers.odd_ids import NAMES, secret, secrets_in, tell

# Everybody is in the store; who asks, and whose neighbour. Nightly, everybody asks.
ASKING = list(pairwise([*NAMES, NAMES[0]]))[:: 1 if NIGHTLY else 9]
Make = Callable[..., Memory]


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
        context = crowded.context("the pin", thread_id=f"new thread of {name}"[:250], user_id=name, top_k=50)
        assert secrets_in(own(context.messages)) == set()
        assert secrets_in(context.messages, context.system, context.recalled) == {name}
        assert secrets_in(crowded.threads.list(user_id=name)) == {name}
        assert secrets_in(crowded.threads.list(user_id=name, metadata={"pin": "mine"})) == {name}
        assert secrets_in(crowded.history.for_user(name)) == {name}
        assert secrets_in(crowded.history.messages(name), crowded.history.page(name).items) == {name}


def test_deleting_one_thread_leaves_those_with_similar_names(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings())
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
    options: dict[str, Any] = {"embeddings": WordEmbeddings()}
    ours = make_memory(**options)
    theirs = make_memory(**options, key_prefix=other.format(p=prefix))
    tell(ours, "a", user="same")
    tell(theirs, "b", user="same")
    for memory, name in ((ours, "a"), (theirs, "b")):
        assert secrets_in(memory.recall.search("pin", user_id="same", top_k=9)) == {name}
        assert secrets_in(memory.threads.list(user_id="same")) == {name}
        assert secrets_in(memory.history.for_user("same")) == {name}
