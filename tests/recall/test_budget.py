"""Recall within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import convert_to_messages

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, RecallResult
from langchain_workingmem._text.messages import message_text
from langchain_workingmem._text.unicode import count_tokens
from tests.helpers.embeddings import WordEmbeddings

Make = Callable[..., Memory]


@pytest.fixture(params=["semantic", "hybrid"])
def talk(request: pytest.FixtureRequest, make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A thread of 40 messages of 10 tokens, every fourth of them about the fox."""
    memory = make_memory(
        embeddings=embeddings,
        recall=RecallOptions(search=request.param, top_k=1),
        history=HistoryOptions(last_messages=2),
    )
    texts = [f"{'red fox' if at % 4 == 0 else 'old sea'} {at:02} ".ljust(40, "x") for at in range(40)]
    memory.history.append([HumanMessage(text, id=str(at)) for at, text in enumerate(texts)], thread_id="t", user_id="u")
    return memory


def size(found: RecallResult) -> int:
    return sum(count_tokens(message_text(message)) for message in convert_to_messages(found.messages))


@pytest.mark.parametrize("budget", [9, 45, 300])
def test_the_budget_is_filled_and_kept(talk: Memory, budget: int) -> None:
    found = talk.recall.search("red fox", user_id="u", message_range=1, max_tokens=budget)
    assert size(found) == budget // 10 * 10
    # what was said beside a hit comes before the next one
    assert all(hit.before or hit.after for hit in found.hits[: budget // 30])


def test_what_was_said_around_a_good_hit_comes_before_a_bad_hit(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions())
    texts = ["What is the code of the red vault?", "It is 4711, and do not lose it.", "I have painted a vault of stars"]
    for thread, said in (("a", texts[:2]), ("b", texts[2:])):
        memory.history.append([("user", text) for text in said], thread_id=thread, user_id="u")
    for budget, shown in ((9, texts[:1]), (18, texts[:2]), (26, texts)):
        found = memory.recall.search("code of the red vault", user_id="u", max_tokens=budget)
        assert [str(message.text) for message in found.messages] == shown
