"""Numbers with points, order numbers and addresses match themselves."""

from __future__ import annotations

import pytest

from langchain_workingmem import LocalEmbeddings, RecallOptions
from tests.helpers.types import Make

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
