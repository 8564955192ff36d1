"""Numbers with points, order numbers and addresses match themselves."""

from __future__ import annotations

import pytest

from langchain_workingmem import LocalEmbeddings, RecallOptions
from langchain_workingmem._redis.queries import distinct_words
from langchain_workingmem._text.unicode import as_searched
from tests.helpers.types import Make

NEARLY = {  # of each the words that are looked for, and texts with its digits or parts
    "10.0.0.1": ({"10_0_0_1"}, ["The host 10.0.0.12 is down", "I have 10 of 0 and 1", "10-0-0-1 was the score"]),
    "ORD-2024-0815": ({"ord__2024__0815"}, ["We ordered 0815 in 2024", "ORD-2024-0816 is late"]),
    "v1.2.3": ({"v1_2_3"}, ["v1.2.30 is out", "v1 has 2 of 3 parts"]),
    "ann.lee@example.com": ({"ann_lee_at_example_com"}, ["Ann Lee is at example com", "lee@example.com called"]),
    "2001:db8::1": ({"2001____db8________1"}, ["2001 db8 1", "2001:db8::12"]),
}


@pytest.mark.parametrize("name", NEARLY)
def test_its_words_are_looked_for_as_one(name: str) -> None:
    words, others = NEARLY[name]
    assert words <= {*distinct_words(f"What about {name}?", whole=True)}
    assert not any(words <= {*distinct_words(other)} for other in others)


ALONE = {
    "4711": "My order has the number 4711, and it should come on Tuesday.",
    "0170-5551239": "Call my brother at 0170-5551239 if I am not there.",
    "192.168.7.13": "The printer has the address 192.168.7.13 in our network.",
    "v2.14.3": "We deploy v2.14.3 on Monday, with the new login.",
    "ann.lee@example.com": "Write to ann.lee@example.com for the invoice, not to me.",
    "Kowalczyk": "My neighbour Kowalczyk waters the plants.",
}
# nearer, to this embedding model
SHORT = [
    "ok",
    "471",
    "4712",
    "192.168.7.1",
    "2.14",
    "1",
    "42",
    "0170",
    "5551234",
    "and 13 more",
    "ann",
    "done",
]


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


def test_of_several_that_have_the_number_all_come_first(make_memory: Make) -> None:
    memory = make_memory(embeddings=LocalEmbeddings(), recall=RecallOptions(message_range=0))
    said = [
        f"{word}, the order 4711 is {'still ' * at}late"
        for at, word in enumerate(["Sorry", "Alas", "Oh", "Well", "Hm", "So"])
    ]
    memory.history.append([*SHORT * 3, *said, "Nothing new."], thread_id="t", user_id="maya")
    found = memory.recall.search("4711?", user_id="maya", top_k=6).hits
    assert {hit.message.text for hit in found} == {*said}


@pytest.mark.parametrize(
    "text", ["well-known e.g. 2023-05-07 and 7.5.2023", "the end. 5 of 6", "a/b", "x" * 80 + "-1", "5, 6 - 7"]
)
def test_other_texts_are_stored_as_they_are(text: str) -> None:
    assert as_searched(text) == text
