"""Titles: made in the background, never over a person's, and a failure harms no turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult

from langchain_workingmem import Memory, OptionError, TitleOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history.titles import clean

pytestmark = pytest.mark.in_turn("face")


class Namer(FakeMessagesListChatModel):
    """Answers with a title, when it is let go, and remembers what it was asked."""

    responses: list[BaseMessage] = []
    answer: str = "A dog from the shelter"
    asked: list[list[BaseMessage]] = []
    broken: bool = False
    gate: Any = None
    meanwhile: Any = None  # what happens while it thinks

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.asked.append(messages)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.meanwhile is not None:
            self.meanwhile()
        if self.broken:
            raise RuntimeError("no tokens left")
        self.responses = [AIMessage(self.answer)]
        return super()._generate(messages, *args, **kwargs)


TURN = [HumanMessage("I want to adopt a dog"), AIMessage("Good idea!")]


@pytest.fixture
def model() -> Namer:
    return Namer(asked=[])


class Titled:
    """A memory that makes titles, in both faces; `finish` waits for the background."""

    def __init__(self, url: str, prefix: str, face: str, runner: asyncio.Runner, options: TitleOptions) -> None:
        self.memory = Memory(url, key_prefix=prefix, title=options)
        self._face, self._runner = face, runner

    def save(self, messages: list[Any], thread_id: str = "t") -> None:
        if self._face == "sync":
            self.memory.save_turn(messages, thread_id=thread_id, user_id="u")
        else:
            self._runner.run(self.memory.asave_turn(messages, thread_id=thread_id, user_id="u"))

    def finish(self) -> None:
        if self._face == "sync":
            self.memory.settled()
        else:
            self._runner.run(self.memory.asettled())

    def title(self, thread_id: str = "t") -> str | None:
        self.finish()
        thread = self.memory.threads.get(thread_id)
        return thread.title if thread else None


@pytest.fixture
def titled(
    server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner, model: Namer
) -> Iterator[Callable[..., Titled]]:
    made: list[Titled] = []

    def make(**options: Any) -> Titled:
        options.setdefault("model", model)
        made.append(Titled(server.url, prefix, face, loop_runner, TitleOptions(**options)))
        return made[-1]

    yield make
    for one in made:
        loop_runner.run(one.memory.aclose())


def test_a_thread_without_a_title_gets_one_after_its_first_turn(titled: Callable[..., Titled], model: Namer) -> None:
    chat = titled()
    chat.save(TURN)
    assert chat.title() == "A dog from the shelter"
    prompt, question = model.asked[0]
    assert "At most 80 characters" in str(prompt.content)
    assert question.content == "I want to adopt a dog"


def test_a_title_that_a_person_gave_stays(titled: Callable[..., Titled], model: Namer) -> None:
    chat = titled()
    chat.memory.threads.create(user_id="u", thread_id="t", title="Mine")
    chat.save(TURN)
    assert chat.title() == "Mine"
    assert model.asked == []


def test_a_thread_that_is_deleted_meanwhile_stays_deleted(titled: Callable[..., Titled], model: Namer) -> None:
    model.gate = threading.Event()
    chat = titled()
    chat.save(TURN)
    chat.memory.threads.delete("t")
    model.gate.set()
    chat.finish()
    assert chat.memory.threads.get("t") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history.delete(["q"], thread_id="t"),
        lambda history: history.update([HumanMessage("I want a cat", id="q")], thread_id="t"),
    ],
    ids=["deleted", "edited"],
)
def test_a_title_of_words_that_have_gone_meanwhile_is_not_set(
    titled: Callable[..., Titled], model: Namer, change: Callable[[Any], object]
) -> None:
    chat = titled()
    model.meanwhile = lambda: change(chat.memory.history)
    chat.save([HumanMessage("I want to adopt a dog", id="q"), AIMessage("Good idea!")])
    assert chat.title() is None
    assert len(model.asked) == 1
    model.answer, model.meanwhile = "A cat", None
    chat.save([HumanMessage("Which food?"), AIMessage("Fish")])
    assert chat.title() == "A cat"


def test_a_failing_model_is_said_in_the_log_and_asked_again_next_time(
    titled: Callable[..., Titled], model: Namer, caplog: pytest.LogCaptureFixture
) -> None:
    model.broken = True
    chat = titled()
    with caplog.at_level(logging.WARNING):
        chat.save(TURN)
        chat.finish()
    assert "has no title yet: the chat model failed (RuntimeError: no tokens left)" in caplog.text
    model.broken = False
    chat.save([HumanMessage("And a cat?"), AIMessage("Why not")])
    assert chat.title() == "A dog from the shelter"


def test_instructions_of_ones_own_replace_ours(titled: Callable[..., Titled], model: Namer) -> None:
    chat = titled(instructions="Three words, {max_chars} letters, {curly}.", max_chars=20)
    chat.save(TURN)
    assert chat.title() == "A dog from the…"
    assert model.asked[0][0].content == "Three words, 20 letters, {curly}."


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A dog", "A dog"),
        ('"A dog"', "A dog"),
        ("“A dog”\n\nI hope you like it", "A dog"),
        ("<think>A cat? No.\nA dog.</think>\n\n**A dog**", "A dog"),
        ("<think>never closed", ""),
        ("Title: A dog", "A dog"),
        ("  \n\n", ""),
        ("A\tdog  and   a cat", "A dog and a cat"),
        ("x" * 200, "x" * 79 + "…"),
        ("word " * 40, ("word " * 15).strip() + "…"),
    ],
)
def test_an_answer_becomes_a_title(answer: str, title: str) -> None:
    found = clean(answer, 80)
    assert found == title
    assert len(found) <= 80


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="pass a chat model"):
        TitleOptions(model=5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="model='nonsense:x'"):
        Memory("redis://127.0.0.1:1", title=TitleOptions(model="nonsense:x"))


PICTURE: list[Any] = [{"type": "image", "url": "https://example.com/dog.png"}]


@pytest.mark.parametrize("pictures", [1, 2, 25])
def test_the_first_message_that_has_words_names_the_thread(
    titled: Callable[..., Titled], model: Namer, pictures: int
) -> None:
    chat = titled(min_messages=pictures + 2)
    chat.save([HumanMessage(PICTURE) for _ in range(pictures)] + [AIMessage("A dog!"), HumanMessage("Which breed?")])
    assert chat.title() == "A dog from the shelter"
    assert [asked[1].content for asked in model.asked] == ["Which breed?"]


def test_without_a_model_no_title_is_made_and_the_log_says_so_once(
    titled: Callable[..., Titled], caplog: pytest.LogCaptureFixture
) -> None:
    chat = titled(model=None)
    for thread in ("t", "other"):
        chat.save(TURN, thread)
    assert chat.title() is None
    assert caplog.text.count("pass TitleOptions(model=...)") == 1
