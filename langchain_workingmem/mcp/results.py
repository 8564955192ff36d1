"""What the tools return beside their text, as types that make the `outputSchema` of each tool."""

from __future__ import annotations

from typing import (
    Annotated,
    NotRequired,  # pydantic wants this one before Python 3.12
)

from pydantic import Field
from typing_extensions import TypedDict

Time = Annotated[str, Field(description="ISO 8601, UTC.")]
Cursor = Annotated[
    str | None, Field(description="Pass it as `cursor` to get the next page; null: this is the last one.")
]
Done = Annotated[str, Field(description="What was done, in words.")]


class ThreadRow(TypedDict):
    """A thread."""

    thread_id: str
    title: str | None
    message_count: int
    created_at: Time
    updated_at: Time


class Message(TypedDict):
    """A message of a thread."""

    id: str | None
    role: Annotated[str, Field(description="user, assistant, tool, or another one.")]
    name: Annotated[str | None, Field(description="Who speaks, where several people or agents do.")]
    time: Time
    text: str


class Hit(Message):
    """A message that was found."""

    thread_id: str
    thread_title: str | None
    similarity: Annotated[float, Field(description="From 0 to 1; 1 is the same meaning.")]
    before: Annotated[list[str], Field(description="Texts of the messages before it.")]
    after: Annotated[list[str], Field(description="Texts of the messages after it.")]


class Passage(TypedDict):
    """A passage of a file that was found."""

    path: str
    first_line: int
    last_line: int
    revision: int
    text: str


class Found(TypedDict):
    """What `search_memory` returns."""

    hits: Annotated[list[Hit], Field(description="The best one first.")]
    passages: NotRequired[list[Passage]]


class Threads(TypedDict):
    """What `list_threads` returns."""

    threads: Annotated[list[ThreadRow], Field(description="The latest one first.")]
    total: int
    next_cursor: Cursor


class Messages(TypedDict):
    """What `read_thread` returns."""

    thread: ThreadRow
    messages: Annotated[list[Message], Field(description="Oldest first.")]
    total: int
    next_cursor: Cursor


class Saved(TypedDict):
    """What `save_messages` returns."""

    thread_id: str
    message_ids: Annotated[list[str], Field(description="In the order of the messages.")]


class Deleted(TypedDict):
    """What `delete_message` returns."""

    thread_id: str
    deleted: Annotated[int, Field(description="Messages: a call of a tool and its results go together.")]


class Source(TypedDict):
    """A message, by its ids."""

    thread_id: str
    id: str


class Value(TypedDict):
    """A value of working memory that holds."""

    path: str
    since: Time
    by: Annotated[str | None, Field(description="What wrote it, such as keeper.")]
    messages: Annotated[list[Source], Field(description="The messages that say so.")]


class Document(TypedDict):
    """What `get_working_memory` returns."""

    text: Annotated[str, Field(description="Empty if nothing is known.")]
    revision: Annotated[int, Field(description="0: never written.")]
    updated_at: Time | None
    template: Annotated[str | None, Field(description="The form of the text, if it has one.")]
    values: NotRequired[list[Value]]


class Changed(TypedDict):
    """What a change of working memory returns."""

    revision: Annotated[int, Field(description="The present one, after the change.")]
    report: Done


class Revision(TypedDict):
    """A revision of working memory."""

    revision: int
    time: Time | None
    by: Annotated[str | None, Field(description="The operation that wrote it.")]
    text: str


class Revisions(TypedDict):
    """What `list_working_memory_revisions` returns."""

    revisions: Annotated[list[Revision], Field(description="The present one first.")]


class Entry(TypedDict):
    """A file or a directory."""

    path: str
    is_dir: bool
    size: NotRequired[Annotated[int, Field(description="Bytes.")]]
    revision: NotRequired[int]
    updated_at: NotRequired[Time]


class Entries(TypedDict):
    """What `list_files` returns."""

    entries: list[Entry]
    total: int
    next_cursor: Cursor


class FileText(Entry):
    """What `read_file` returns."""

    text: Annotated[str | None, Field(description="The lines that were asked for; null: the file is no text.")]
    total_lines: NotRequired[int]
    next_line: NotRequired[Annotated[int | None, Field(description="Read on from here; null: this is the end.")]]


class FileChanged(TypedDict):
    """What a change of a file returns."""

    path: str
    revision: Annotated[int, Field(description="The present one, after the change.")]
    changed: Annotated[bool, Field(description="false: the file was like this already.")]
    merged: Annotated[bool, Field(description="true: it was merged with changes of others. Read the file again.")]


class FileVersion(TypedDict):
    """A revision of a file."""

    revision: int
    time: Time
    what: Annotated[str, Field(description="The operation that wrote it; delete: the file was deleted then.")]
    by: Annotated[str, Field(description="Who wrote it, as the writer has said.")]
    size: Annotated[int, Field(description="Bytes.")]


class FileVersions(TypedDict):
    """What `list_file_revisions` returns."""

    path: str
    revisions: Annotated[list[FileVersion], Field(description="The newest first.")]
