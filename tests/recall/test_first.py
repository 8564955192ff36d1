"""What recall shows first: within a budget of tokens, among what stands in the way of a hit, and of exact matches."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import convert_to_messages
from redis import Redis

from langchain_workingmem import HistoryOptions, LocalEmbeddings, Memory, RecallOptions, RecallResult
from langchain_workingmem._text.messages import message_text
from langchain_workingmem._text.unicode import count_tokens
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips
from tests.helpers.types import Make


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


def test_what_stands_beside_a_hit_takes_half_as_much(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions())
    memory.history.append([("user", "red fox " * 300), ("ai", "old sea " * 300)], thread_id="a", user_id="u")
    found = memory.recall.search("red fox", user_id="u", max_tokens=800, top_k=1)
    assert [count_tokens(str(message.text)) // 10 for message in found.messages] == [19, 9]


FACT = "We have a dog whose name is a secret"
NEW: Any = {"thread_id": "new", "user_id": "u"}


def texts(found: Any) -> list[str]:
    return [str(message.text) for message in found.messages]


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_vectors_of_threads_that_are_gone_hide_nothing(
    make_memory: Make, local_model: LocalEmbeddings, raw: Redis, trips: Trips, search: Any
) -> None:
    memory = make_memory(embeddings=local_model, recall=RecallOptions(search=search))
    for at in range(8):
        memory.save_turn([("user", f"My dog is called Nougat {at}."), ("ai", "ok")], thread_id=f"o{at}", user_id="u")
    memory.save_turn([("user", FACT)], thread_id="fresh", user_id="u")
    raw.delete(*(memory._core.state.keys.of(f"o{at}").thread for at in range(8)))  # as when they expire
    asked = "What is my dog called Nougat?"
    assert texts(memory.recall.search(asked, user_id="u")) == [FACT]
    assert texts(memory.context(asked, **NEW, read_only=True).recalled) == [FACT]
    assert trips.of(lambda: memory.recall.search(asked, user_id="u")) == 4


def test_hundreds_of_copies_hide_nothing_and_the_newest_is_the_hit(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(message_range=0))
    memory.save_turn([("user", "red fox in the wood")], thread_id="told", user_id="u")
    copies = [HumanMessage("where is the red fox", id=str(at)) for at in range(230)]
    memory.history.append(copies, thread_id="cron", user_id="u")
    newest, told = memory.recall.search("where is the red fox", user_id="u", top_k=2).hits
    assert (newest.message.id, told.message.text) == ("229", "red fox in the wood")


ALONE = {
    "4711": "My order has the number 4711, and it should come on Tuesday.",
    "0170-5551239": "Call my brother at 0170-5551239 if I am not there.",
    "192.168.7.13": "The printer has the address 192.168.7.13 in our network.",
    "v2.14.3": "We deploy v2.14.3 on Monday, with the new login.",
    "ann.lee@example.com": "Write to ann.lee@example.com for the invoice, not to me.",
    "Kowalczyk": "My neighbour Kowalczyk waters the plants.",
}
# nearer, to this embedding model
SHORT = [*("ok", "471", "4712", "192.168.7.1", "2.14", "1", "42", "0170", "5551234", "and 13 more", "ann", "done")]


@pytest.mark.parametrize("form", ["{}", "What was {} about?"])
def test_an_exact_match_comes_first_wherever_recall_shows_it(make_memory: Make, form: str) -> None:
    memory = make_memory(embeddings=LocalEmbeddings(), recall=RecallOptions(message_range=0))
    said = [text for pair in zip(ALONE.values(), SHORT, strict=False) for text in pair]
    memory.history.append(
        [*said, *SHORT, *(f"{one}, {at}" for at in range(9) for one in SHORT)], thread_id="old", user_id="maya"
    )
    (search,) = memory.tools(thread_id="new", user_id="maya", include=["search_memory"])
    retriever = memory.as_retriever(user_id="maya")
    for name, text in ALONE.items():
        asked = form.format(name)
        assert memory.recall.search(asked, user_id="maya").hits[0].message.text == text
        shown = memory.context(asked, thread_id="new", user_id="maya").recalled
        assert [hit.message.text for hit in shown.hits][:1] == [text]
        assert text in retriever.invoke(asked)[0].page_content
        assert text in search.invoke({"query": asked})
