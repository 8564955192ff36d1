"""What a context costs: its parts add up to what is sent, by the counter of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._text.messages import weight_of
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.models import calling
from tests.helpers.types import Make

HERE: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
QUESTION = "which hotel in Xanadu, and what about the ferry?"
KINDS = (HumanMessage, AIMessage)
PARTS = ("history", "recall", "working_memory", "question")
PICTURE: list[str | dict[Any, Any]] = [
    {"type": "text", "text": QUESTION},
    {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
]


def words(messages: Sequence[BaseMessage]) -> int:
    """Count as no estimate does: rounded over all, with a start for each request."""
    return 7 + sum(len(str(one.text).split()) for one in messages) * 4 // 3


@pytest.fixture
def filled(make_memory: Make, embeddings: WordEmbeddings) -> Make:
    """What makes memories of a user who has everything: two threads, a working memory."""

    def make(**options: Any) -> Memory:
        return make_memory(embeddings=embeddings, **options)

    memory = make(working_memory=WorkingMemoryOptions(template=""))
    for thread in ("t", "other"):
        asked = HumanMessage(f"the ferry of {thread} leaves at nine", id=f"{thread}1")
        call, seen = calling(("weather", {}), id=f"{thread}2"), ToolMessage("sunny", tool_call_id=f"{thread}2-0")
        memory.save_turn([asked, call, seen, AIMessage("noted")], thread_id=thread, user_id="u")
    for turn in (("hello", "hello"), ("and now", "what?")):
        messages = [kind(text, id=f"{text} {kind.__name__}") for kind, text in zip(KINDS, turn, strict=True)]
        memory.save_turn(messages, **HERE)
    memory.working_memory.update("The user is called Sam.", **HERE)
    memory.settled()
    return make


placements = st.sampled_from(["question", "system"])
memories = st.fixed_dictionaries(
    {
        "history": st.builds(
            HistoryOptions,
            last_messages=st.sampled_from([None, 0, 2]),
            max_tokens=st.sampled_from([None, 20]),
            token_counter=st.sampled_from(["approximate", words]),
            exclude_tools=st.booleans(),
            roles=st.sampled_from([None, ["human"]]),
        )
    },
    optional={
        "recall": st.just(False) | st.builds(RecallOptions, placement=placements),
        "working_memory": st.builds(WorkingMemoryOptions, template=st.just(""), placement=placements),
    },
)
turns = st.sampled_from(
    [
        [HumanMessage(QUESTION)],
        [HumanMessage(PICTURE)],
        [SystemMessage("You are kind."), HumanMessage(QUESTION, name="Sam O'Hara")],
        [HumanMessage("first"), HumanMessage(QUESTION)],
        [HumanMessage("and now", id="and now HumanMessage"), AIMessage("what?", id="a"), HumanMessage(QUESTION)],
        [HumanMessage(QUESTION), calling(("weather", {}), id="w"), ToolMessage("sunny", tool_call_id="w-0")],
    ]
)


def test_the_parts_add_up(filled: Make) -> None:
    seen: set[str] = set()

    every: dict[str, Any] = {"history": HistoryOptions(), "working_memory": WorkingMemoryOptions(template="")}

    @examples(60, server=True)
    @given(memories, turns)
    @example(every, [HumanMessage(QUESTION)])  # has each part
    def whatever(options: dict[str, Any], turn: list[BaseMessage]) -> None:
        context = filled(**options).context([one.model_copy() for one in turn], **HERE)
        counter = options["history"].token_counter
        count = weight_of if counter == "approximate" else counter
        usage = context.usage
        parts = {name: getattr(usage, name) for name in PARTS}
        sent = [*map(SystemMessage, context.system), *context.messages]
        assert sum(parts.values()) == usage.total == count(sent)
        has = {"question": True, "recall": bool(context.recalled.rows), "working_memory": "working_memory" in options}
        assert {name: parts[name] > 0 for name in has} == has
        seen.update(name for name, tokens in parts.items() if tokens)
        alone = [HumanMessage(one.content, name=one.name) for one in turn if one.type == "human" and one.id is None]
        assert usage.question >= count(alone) - 7

    whatever()
    assert seen == {*PARTS}  # or the options have become too narrow
