"""Pictures, audio and files: read by an observer that can, else shown as they are for some turns, then named in the log's place."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatResult

from langchain_workingmem import Memory, ObservationOptions, OptionError, history
from langchain_workingmem._text.media import attachment, has_media, media_in
from langchain_workingmem.observations import reflecting
from langchain_workingmem.observations.observer import attached
from langchain_workingmem.observations.observer.attached import _kind
from langchain_workingmem.observations.observing import _observe
from langchain_workingmem.observations.pressure import shorten
from langchain_workingmem.observations.reading import log_key
from langchain_workingmem.options import Scope
from tests.helpers.conversations import accept
from tests.helpers.media import data_of, forms, picture
from tests.helpers.noting import MARK, Noting, notes_in, observing, words
from tests.helpers.types import Make

pytestmark = pytest.mark.programs

IDS: dict[str, Any] = {"thread_id": "t", "resource_id": "u"}
PICTURES: Any = {"image_inputs": True}
READS_ALL = {f"{kind}_inputs": True for kind in ("image", "pdf", "audio", "video")}


class StatusError(Exception):
    """An error of a provider with a status."""

    def __init__(self, status: int) -> None:
        super().__init__("no")
        self.status_code = status


class Blind(Noting):
    """Raises when it is shown media."""

    error: Any = None

    def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> ChatResult:
        if has_media(messages[1]):
            self.asked.append(messages)
            raise self.error
        return super()._generate(messages, *rest, **more)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.0)


def pdf(seed: int, size: int = 300_000) -> dict[str, Any]:
    return {"type": "file", "base64": data_of(seed, size), "mime_type": "application/pdf", "filename": f"{seed}.pdf"}


def audio(seed: int) -> dict[str, Any]:
    return {"type": "audio", "base64": data_of(seed), "mime_type": "audio/mpeg", "name": f"{seed}.mp3"}


def asks(number: int, *blocks: dict[str, Any]) -> HumanMessage:
    return HumanMessage([{"type": "text", "text": words(number)}, *blocks], id=f"m{number}")


def said(number: int, *blocks: dict[str, Any]) -> list[BaseMessage]:
    """Return a turn, whose question has media."""
    return [asks(number, *blocks), AIMessage(words(number + 1), id=f"m{number + 1}")]


def talk(memory: Memory, first: int, turns: int, thread: str = "t") -> None:
    """Save turns without media, each followed by its observer."""
    for at in range(first, first + 2 * turns, 2):
        memory.save_turn(said(at), thread_id=thread, resource_id="u")
        memory.settled()


def shown(memory: Memory, thread: str = "t") -> list[str]:
    """Return the names of the media that the agent's model is shown; the request is valid, and nothing is shown twice."""
    context = memory.context("and now?", thread_id=thread, resource_id="u")
    accept(context.messages)
    return [
        attachment(block)
        for one in context.messages
        if isinstance(one.content, list)
        for block in media_in(one.content)
    ]


def asked(model: Noting) -> list[list[dict[str, Any]]]:
    """Return the content of each call that has media."""
    return [found for call in model.asked if isinstance(found := call[1].content, list)]  # type: ignore[misc]


@pytest.mark.in_turn("scope")
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_files_are_shown_until_they_were_read_or_for_some_turns(make_memory: Make, scope: Scope) -> None:
    """A PDF of 300 KB, 20 pictures and two audio files; the observer reads pictures only."""
    model = Noting(profile=PICTURES)
    memory = make_memory(observations=observing(model, scope=scope, background=True))
    memory.save_turn(said(0, pdf(1)), **IDS)
    memory.save_turn(said(2, audio(2), audio(3)), **IDS)
    memory.save_turn(said(4, *[picture(at, f"{at}.png") for at in range(20)]), **IDS)
    memory.settled()
    others = ["[file: 1.pdf]", "[audio: 2.mp3]", "[audio: 3.mp3]"]
    assert shown(memory) == [*others, *(f"[picture: {at}.png]" for at in range(20))]  # the last turn is never read

    talk(memory, 6, 1)
    assert shown(memory) == others  # and what was said between them was observed
    ((text, *blocks),) = asked(model)
    assert blocks[0] == {"type": "text", "text": f"Picture 1 of message {text['text'].count('<message ')}:"}
    assert [one["base64"] for one in blocks[1::2]] == [data_of(at) for at in range(20)]
    assert "\n[picture: 0.png]\n[picture: 1.png]" in text["text"]
    assert "# Pictures and files" in str(model.asked[-1][0].text)
    notes = notes_in(memory.context("?", **IDS).messages)
    assert MARK.findall(notes) == ["mark1x", "mark3x", "mark4x"]

    talk(memory, 8, 1)
    assert shown(memory) == others[1:]  # the fourth turn after the first
    talk(memory, 10, 14)
    assert shown(memory) == []
    named = [str(call[1].text) for call in model.asked if "\n[file: 1.pdf]</message>" in str(call[1].text)]
    assert "# Pictures and files" not in str(model.asked[-1][0].text)
    assert len(asked(model)) == 1
    assert len(named) == 1  # once it was observed
    assert data_of(1, 300)[:99] not in named[0]
    log = memory.observations.get(**(IDS if scope == "thread" else {"resource_id": "u"}))
    assert log.pending_tokens < 400
    assert {f"mark{at}x" for at in range(12)} <= set(MARK.findall(notes_in(memory.context("?", **IDS).messages)))


@pytest.mark.parametrize(
    ("attachments", "profile", "reads"),
    [
        ("auto", None, False),
        ("auto", {"image_inputs": True, "pdf_inputs": False}, False),
        ("auto", READS_ALL, True),
        (True, None, True),
        (False, READS_ALL, False),
    ],
)
def test_an_observer_is_shown_what_it_reads(make_memory: Make, attachments: Any, profile: Any, reads: bool) -> None:
    model = Noting(profile=profile)
    memory = make_memory(observations=observing(model, attachments=attachments, keep_tokens=0))
    memory.history.append([*said(0, pdf(1, 3_000)), *said(2)], **IDS)
    memory.observations.observe(**IDS)
    assert [[one["type"] for one in call] for call in asked(model)] == ([["text", "text", "file"]] if reads else [])
    assert shown(memory) == ([] if reads else ["[file: 1.pdf]"])
    assert "mark1x" in notes_in(memory.context("?", **IDS).messages)


def test_pictures_of_tools_never_grow_without_bound(make_memory: Make) -> None:
    """In one long turn the newest three stay, and what `keep_tokens` keeps."""
    model = Noting()
    memory = make_memory(observations=observing(model, message_tokens=8_000, keep_tokens=2_000, batch_tokens=4_000))
    memory.save_turn([asks(0)], **IDS)
    for at in range(1, 41):
        call = AIMessage("", id=f"c{at}", tool_calls=[{"name": "look", "args": {}, "id": f"{at}"}])
        block = {"type": "image", "url": "https://x/y.png"} if at % 3 == 0 else picture(at)
        result = ToolMessage([{"type": "text", "text": f"mark{at}x"}, block], tool_call_id=f"{at}", id=f"r{at}")
        memory.save_turn([call, result], **IDS)
        memory.observations.observe(**IDS)
        assert len(shown(memory)) <= 12
    context = memory.context("?", **IDS)
    assert {f"mark{at}x" for at in range(1, 30)} <= set(MARK.findall(notes_in(context.messages)))
    for at in range(41, 61):  # turns without media
        memory.save_turn([HumanMessage(words(at)), AIMessage(words(at, 200))], **IDS)
    memory.observations.observe(**IDS)
    assert shown(memory) == []


@pytest.mark.parametrize("error", [StatusError(400), StatusError(404), ValueError("Unsupported block")], ids=repr)
@pytest.mark.parametrize("batch_tokens", [10, 9_000])
def test_media_that_a_provider_refuses_are_left_out(make_memory: Make, error: Exception, batch_tokens: int) -> None:
    """The range is halved as others are; a single group is asked about once more without its media."""
    model = Blind(error=error)
    memory = make_memory(observations=observing(model, attachments=True, keep_tokens=0, batch_tokens=batch_tokens))
    memory.history.append([*said(0), *said(2, picture(1)), *said(4), *said(90)], **IDS)
    for _ in range(3):  # nothing else was answered in the first two runs
        log = memory.observations.observe(**IDS)
    assert MARK.findall(" ".join(one.text for one in log)) == [f"mark{at}x" for at in range(6)]
    assert shown(memory) == []
    assert len(asked(model)) == (1 if batch_tokens == 10 else 3 + 1 + 1 + 1)  # of 6 messages, 3, 2 and 1


def test_conversations_that_share_a_call_show_their_pictures(make_memory: Make) -> None:
    model = Noting(profile=PICTURES)
    memory = make_memory(observations=observing(model, scope="resource", message_tokens=10**6, batch_tokens=20_000))
    for at in range(3):
        memory.history.append(said(10 * at, picture(at), audio(at)), thread_id=f"t{at}", resource_id="u")
    state = memory._core.state
    memory._core.run(_observe(state, log_key(state, "t0", "u"), None, wait=False))
    (call,) = asked(model)
    assert [one["text"] for one in call[1::2]] == ["Picture 1 of message 1:", "Picture 1 of message 3:"]
    assert [one["base64"] for one in call[2::2]] == [data_of(0), data_of(1)]
    assert [shown(memory, f"t{at}") for at in range(3)] == [
        [],
        [],
        ["[picture: map.png]", "[audio: 2.mp3]"],
    ]  # the newest


def test_a_prompt_that_is_too_long_keeps_no_media_of_earlier_turns(make_memory: Make) -> None:
    memory = make_memory(observations=observing(Noting()))
    memory.history.append([*said(0, pdf(1)), *said(2), *said(4, picture(5))], **IDS)
    memory.observations.observe(**IDS)
    assert shown(memory) == ["[file: 1.pdf]", "[picture: map.png]"]
    memory._core.run(shorten(memory._core.state, "t", "u"))
    assert shown(memory) == ["[picture: map.png]"]


def test_media_do_not_make_the_observer_due(make_memory: Make) -> None:
    """What stays as it is does not count: the rest is read in whole batches."""
    model = Noting()
    memory = make_memory(observations=observing(model, background=True))
    memory.save_turn(said(0, pdf(1)), **IDS)
    talk(memory, 2, 3)
    assert model.asked == []
    talk(memory, 8, 1)
    assert len(shown(memory)) == 0
    assert model.asked


def test_a_message_that_is_deleted_meanwhile_is_not_read(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make_memory(observations=observing(model := Noting(profile=PICTURES), keep_tokens=0, batch_tokens=9_000))
    memory.history.append([*said(0, picture(1)), *said(2)], **IDS)
    original = history.with_media

    def deleting(*given: Any) -> Any:
        memory.history.delete(["m0"], **IDS)
        return (yield from original(*given))

    monkeypatch.setattr(attached, "with_media", deleting)
    log = memory.observations.observe(**IDS)
    assert [MARK.findall(one.text) for one in log] == [["mark1x"]]
    assert asked(model) == []


def test_kinds_of_files() -> None:
    forms: list[tuple[dict[str, Any], str]] = [
        ({"type": "image_url", "image_url": {"url": "https://x/y.png"}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio"),
        ({"type": "media", "mime_type": "video/mp4", "data": "AAAA"}, "video"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}, "application/pdf"),
        ({"type": "document", "source": {"media_type": "text/csv", "data": "AAAA"}}, "text/csv"),
        ({"document": {"format": "docx", "source": {"bytes": "AAAA"}}}, "application/docx"),
        ({"type": "file", "file_id": "f-1"}, "application/pdf"),
        ({"type": "text-plain", "text": "a note"}, ""),
    ]
    assert [_kind(block) for block, _ in forms] == [kind for _, kind in forms]


def test_media_are_shown_in_one_form(make_memory: Make) -> None:
    model = Noting()
    memory = make_memory(observations=observing(model, attachments=True, keep_tokens=0, batch_tokens=90_000))
    memory.history.append([*forms().values(), AIMessage("these are all"), *said(0)], **IDS)
    memory.observations.observe(**IDS)
    blocks = asked(model)[0][2::2]
    one, two, three, four = map(data_of, range(1, 5))
    pictures = [("image", data) for data in (one, one, one, one, two, two, two)]
    others = [("audio", one), ("file", one), ("image", one), ("video", one), ("image", three), ("image", four)]
    assert [(block["type"], block.get("base64")) for block in blocks] == [*pictures, *others]


def test_a_block_that_is_not_whole_is_named(make_memory: Make) -> None:
    """LangChain itself fails with it, in each call of a model."""
    memory = make_memory(observations=observing(Noting(), attachments=True, keep_tokens=0, batch_tokens=10))
    broken: list[Any] = [{"type": "image", "source_type": "base64"}, {"type": "image_url", "image_url": 3}]
    memory.history.append([asks(0, *broken), AIMessage(words(1)), *said(2)], **IDS)
    log = memory.observations.observe(**IDS)
    assert [MARK.findall(one.text) for one in log] == [["mark0x"], ["mark1x"]]


def test_attachments_is_one_of_three() -> None:
    with pytest.raises(OptionError, match="attachments='pictures'"):
        ObservationOptions(model=Noting(), attachments="pictures")  # type: ignore[arg-type]
