"""Pictures, audio and files: which ones an observer reads, how it gets them, and which messages wait for one that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.media import attachment, kind_of, media_in, named_media, strings_in
from langchain_workingmem._text.ranges import join_ranges, write_ranges
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem.history import with_media
from langchain_workingmem.observations.observer.questions import questions_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations.observer.batches import Group
    from langchain_workingmem.options import ObservationOptions

TURNS = Script("observations/turns", "header")

LAST_TURNS = 4  # in which the user's media stay as they are: that of a message, and three after it
LAST_RESULTS = 3  # of these turns, groups with media of tools or of the assistant that stay as they are
_STANDARD = {"image", "audio", "video"}
_INPUTS = {"image": "image_inputs", "audio": "audio_inputs", "video": "video_inputs", "application/pdf": "pdf_inputs"}


def reads(options: ObservationOptions, block: Mapping[Any, Any]) -> bool:
    """Tell whether the observer reads a block that is media: as the options say, else the profile of its model."""
    if options.attachments != "auto":
        return options.attachments
    profile, kind = getattr(options.model, "profile", None), _kind(block)
    return isinstance(profile, Mapping) and kind in _INPUTS and profile.get(_INPUTS[kind]) is True


def _kind(block: Mapping[Any, Any]) -> str:
    """Return image, audio or video, else the MIME type of a file; a file that tells none may be a PDF."""
    kind, mime = kind_of(block), ""
    for (_, key), text, _ in strings_in(block, media=True):
        if key in {"mime_type", "media_type"}:
            mime = text
        elif text.startswith("data:"):
            mime = text[len("data:") :].partition(";")[0]
        elif key == "format":
            mime = mime or f"application/{text}"
    main = mime.lower().partition("/")[0]
    if kind in _INPUTS or main in _INPUTS:
        return kind if kind in _INPUTS else main
    return mime.lower() or ("" if kind == "text-plain" else "application/pdf")


def media_of_rows(options: ObservationOptions, rows: Sequence[StoredMessage]) -> list[tuple[int, Any]]:
    """Return the blocks that the observer reads, each with the number of its message, in LangChain's form where it has one."""
    return [
        (number, _standard(block))
        for number, row in enumerate(rows, 1)
        for block in (media_in(row.message.content) if isinstance(row.message.content, list) else ())
        if reads(options, block)
    ]


def _standard(block: Mapping[Any, Any]) -> Any:
    match block:
        case {"type": "input_image", "image_url": str() as url}:  # of OpenAI's Responses
            block = {"type": "image_url", "image_url": {"url": url}}
        case {"type": "media", "mime_type": str() as mime, "data": str() as data}:  # of Google
            return {"type": _kind(block) if _kind(block) in _STANDARD else "file", "base64": data, "mime_type": mime}
    try:
        (found,) = HumanMessage([dict(block)]).content_blocks
    except (AttributeError, LookupError, TypeError, ValueError):  # not whole: the provider says what is wrong
        return block
    return found["value"] if found["type"] == "non_standard" else found


def readable(
    state: MemoryState, thread_id: str, owner: str | None, rows: Sequence[StoredMessage], *, shows_media: bool
) -> Plan[tuple[list[StoredMessage], list[StoredMessage]]]:
    """Return what the observer may read, as the user's hook leaves it, and the questions that it is shown as reference.

    Media that it reads are in their messages, others are named. No round trip; one where the messages begin inside a turn, and one
    where media have to be read.
    """
    options = state.observations
    questions = yield from questions_before(state, thread_id, owner, rows)
    both = [*questions, *rows]
    asked = {row.message.id for row in questions}
    named = [row for row in both if not shows_media or row.message.id in asked]
    whole = [row.message for row in both if row not in named and options and _some(options, row.message, read=True)]
    gone = yield from with_media(state, whole, thread_id)
    given = [_named(row.message, None if row in named else options) for row in both if id(row.message) not in gone]
    messages = {one.id: one for one in given}
    found = [replace(row, message=messages[row.message.id]) for row in both if row.message.id in messages]
    return [row for row in found if row.message.id not in asked], [row for row in found if row.message.id in asked]


def _some(options: ObservationOptions, message: BaseMessage, *, read: bool) -> bool:
    """Tell whether a message has media that the observer reads, or such that it does not."""
    content = message.content
    return isinstance(content, list) and any(reads(options, block) is read for block in media_in(content))


def _named(message: BaseMessage, options: ObservationOptions | None) -> BaseMessage:
    """Copy a message with names, behind its words, for media that the observer does not read (None: for all)."""
    content, names = message.content, []
    if isinstance(content, str):
        return message
    kept: list[Any] = []
    for block in content:
        inner = list(media_in([block]))
        if not inner or (options is not None and all(reads(options, one) for one in inner)):
            kept.append(block)
        elif name := attachment(block):
            names.append(name)
        else:
            kept += named_media([block])
    if not names:
        return message if kept == content else message.model_copy(update={"content": kept})
    text = "\n".join([*([""] if words_in(message) else []), *names])
    return message.model_copy(update={"content": [*kept, {"type": "text", "text": text}]})


@dataclass(slots=True)
class Held:
    """Groups of a thread that stay as they are for a while, because the observer does not read their media.

    The user's for `LAST_TURNS`, those of tools and of the assistant as long as they are the newest ones in these turns.
    """

    state: MemoryState
    thread_id: str
    owner: str | None
    begins: int | None = None  # where the last turns begin; None: not known yet
    asked: list[tuple[int, int]] = field(default_factory=list)  # first and last sequence numbers
    results: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ranges(self) -> str:
        """Return the sequence numbers as scripts take them."""
        return write_ranges(join_ranges([*self.asked, *self.results]))

    def add(self, groups: Sequence[Group]) -> Plan[bool]:
        """Add those of some groups that stay; tell whether that changes what is to be read. At most one round trip in a run."""
        options = self.state.observations
        found = [one for one in groups if options and any(_some(options, each.row.message, read=False) for each in one)]
        if not found:
            return False
        if self.begins is None:
            call = TURNS.call(self.state.keys.of(self.thread_id).all, owner_tag(self.owner), LAST_TURNS)
            (begins,) = yield from run_script(self.thread_id, self.owner, call)
            self.begins = int(begins)
        before = self.ranges
        for group in found:
            first, last = group[0].row.seq, group[-1].row.seq
            if first >= self.begins:
                (self.asked if isinstance(group[0].row.message, HumanMessage) else self.results).append((first, last))
        self.results = sorted(self.results)[-LAST_RESULTS:]
        return self.ranges != before
