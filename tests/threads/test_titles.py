"""Titles: made in the background, never over a person's, and a failure harms no turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, TitleOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history.titles import clean
from tests.helpers.models import Scripted
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

DOG = "A dog from the shelter"
TURN = [HumanMessage("I want to adopt a dog", id="q"), AIMessage("Good idea!", id="a")]


@pytest.fixture
def other(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    """Another process."""
    with Memory(server.url, key_prefix=prefix) as memory:
        yield memory


def titled(make_memory: Make, model: Scripted | None, **options: Any) -> Memory:
    return make_memory(title=TitleOptions(model=model, **options))


def save(memory: Memory, messages: list[BaseMessage], thread_id: str = "t") -> str | None:
    """Save a turn, wait for the background, and return the title."""
    memory.save_turn(messages, thread_id=thread_id, user_id="u")
    memory.settled()
    thread = memory.threads.get(thread_id)
    return thread.title if thread else None


def test_a_thread_without_a_title_gets_one_after_its_first_turn(make_memory: Make) -> None:
    model = Scripted.says(DOG)
    assert save(titled(make_memory, model), TURN) == DOG
    prompt, question = model.seen[0]
    assert "At most 80 characters" in str(prompt.content)
    assert question.content == "I want to adopt a dog"


CHANGES: dict[str, Callable[[Memory], object]] = {
    "the thread is deleted": lambda memory: memory.threads.delete("t"),
    "the message is deleted": lambda memory: memory.history.delete(["q"], thread_id="t"),
    "the message is edited": lambda memory: memory.history.update(
        [HumanMessage("I want a cat", id="q")], thread_id="t"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_title_of_words_that_have_gone_meanwhile_is_not_set(
    make_memory: Make, other: Memory, change: Callable[[Memory], object]
) -> None:
    def meanwhile(_: list[BaseMessage]) -> str:
        change(other)
        return DOG

    memory = titled(make_memory, Scripted.says(meanwhile, "A cat"))
    assert save(memory, TURN) is None
    assert (memory.threads.get("t") is None) is (change is CHANGES["the thread is deleted"])
    assert save(memory, [HumanMessage("Which food?"), AIMessage("Fish")]) == "A cat"


def test_a_title_that_a_person_gives_stays_also_if_it_comes_meanwhile(make_memory: Make, other: Memory) -> None:
    def meanwhile(_: list[BaseMessage]) -> str:
        other.threads.update("t", title="Mine")
        return DOG

    model = Scripted.says(meanwhile)
    memory = titled(make_memory, model)
    assert save(memory, TURN) == "Mine"
    other.threads.create(user_id="u", thread_id="named", title="Mine, too")
    assert save(memory, TURN, "named") == "Mine, too"
    assert len(model.seen) == 1


def test_a_failing_model_is_said_in_the_log_and_asked_again_next_time(
    make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    memory = titled(make_memory, Scripted.says(RuntimeError("no tokens left"), DOG))
    with caplog.at_level(logging.WARNING):
        assert save(memory, TURN) is None
    assert "has no title yet: the chat model failed (RuntimeError: no tokens left)" in caplog.text
    assert save(memory, [HumanMessage("And a cat?"), AIMessage("Why not")]) == DOG


def test_instructions_of_ones_own_replace_ours(make_memory: Make) -> None:
    model = Scripted.says(DOG)
    memory = titled(make_memory, model, instructions="Three words, {max_chars} letters, {curly}.", max_chars=20)
    assert save(memory, TURN) == "A dog from the…"
    assert model.seen[0][0].content == "Three words, 20 letters, {curly}."


ANSWERS = {
    '"A dog"': "A dog",
    "“A dog”\n\nI hope you like it": "A dog",
    "<think>A cat? No.\nA dog.</think>\n\n**A dog**": "A dog",
    "<think>never closed": "",
    "Title: A dog": "A dog",
    "  \n\n": "",
    "x" * 200: "x" * 79 + "…",
    "word " * 40: ("word " * 15).strip() + "…",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_becomes_a_title(answer: str) -> None:
    assert clean(answer, 80) == ANSWERS[answer]


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="pass a chat model"):
        TitleOptions(model=5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="model='nonsense:x'"):
        Memory("redis://127.0.0.1:1", title=TitleOptions(model="nonsense:x"))


PICTURE: list[Any] = [{"type": "image", "url": "https://example.com/dog.png"}]


@pytest.mark.parametrize("pictures", [1, 25])
def test_the_first_message_that_has_words_names_the_thread(make_memory: Make, pictures: int) -> None:
    model = Scripted.says(DOG)
    seen = [HumanMessage(PICTURE) for _ in range(pictures)]
    turn = [*seen, AIMessage("A dog!"), HumanMessage("Which breed?")]
    assert save(titled(make_memory, model, min_messages=pictures + 2), turn) == DOG
    assert [asked[1].content for asked in model.seen] == ["Which breed?"]


def test_without_a_model_no_title_is_made_and_the_log_says_so_once(
    make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    memory = titled(make_memory, None)
    assert [save(memory, TURN, thread) for thread in ("t", "other")] == [None, None]
    assert caplog.text.count("pass TitleOptions(model=...)") == 1
