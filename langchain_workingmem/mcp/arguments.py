"""The arguments of the tools, as JSON schemas for clients and as checks of what they send."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.utils.json_schema import dereference_refs
from pydantic import BaseModel, Field, TypeAdapter, create_model

from langchain_workingmem.faces.for_models import Whole
from langchain_workingmem.faces.tools.searching import Search
from langchain_workingmem.faces.tools.updating import NoArguments

MOST_MESSAGES, MOST_CHARACTERS = 100, 1_000_000  # of one call of save_messages, in all
MOST_THREADS, MOST_READ = 100, 200  # of one page
MOST_FOUND, MOST_REVISIONS = 50, 100

CURSOR = "next_cursor of the previous page."


class NewMessage(BaseModel, extra="forbid"):
    """A message to save."""

    role: Literal["user", "assistant"] = Field(description="Who said it.")
    content: str = Field(description="The text. Send it complete and unchanged.")
    name: str | None = Field(None, description="Name of the speaker, if several people or agents speak.")
    id: str | None = Field(
        None, description="Your id of the message. A message sent again with the same id is stored once."
    )


class SaveMessages(BaseModel, extra="forbid"):
    """Arguments of `save_messages`."""

    messages: list[NewMessage] = Field(
        min_length=1, max_length=MOST_MESSAGES, description="The new messages, oldest first."
    )
    thread_id: str | None = Field(
        None, description="Id of the thread to continue, or for a new one. Leave it out to begin a new thread."
    )
    title: str | None = Field(None, max_length=500, description="A short title for the thread.")


class ListThreads(BaseModel, extra="forbid"):
    """Arguments of `list_threads`."""

    limit: Whole = Field(20, ge=1, le=MOST_THREADS, description="Number of threads on a page.")
    cursor: str | None = Field(None, description=CURSOR)


class ReadThread(BaseModel, extra="forbid"):
    """Arguments of `read_thread`."""

    thread_id: str = Field(description="Id of the thread, from list_threads or search_memory.")
    start: Literal["newest", "oldest"] = Field(
        "newest", description="Begin at this end. The messages of a page are always oldest first."
    )
    limit: Whole = Field(50, ge=1, le=MOST_READ, description="Number of messages on a page.")
    cursor: str | None = Field(None, description=f"{CURSOR} Pass the same start and roles.")
    roles: list[Literal["user", "assistant", "tool"]] | None = Field(
        None, min_length=1, description="Return only messages of these roles."
    )


class DeleteMessage(BaseModel, extra="forbid"):
    """Arguments of `delete_message`."""

    thread_id: str = Field(description="Id of the thread, from search_memory or read_thread.")
    message_id: str = Field(description="Id of the message, from search_memory or read_thread.")


class SearchMemory(Search, extra="forbid"):
    """Arguments of `search_memory`."""

    limit: Whole | None = Field(
        None, ge=1, le=MOST_FOUND, description="Return at most this number of hits. Leave it out for the usual number."
    )


class ListRevisions(BaseModel, extra="forbid"):
    """Arguments of `list_working_memory_revisions`."""

    limit: Whole = Field(10, ge=1, le=MOST_REVISIONS, description="Number of revisions, the newest first.")


class Revert(BaseModel, extra="forbid"):
    """Arguments of `revert_working_memory`."""

    revision: Whole = Field(ge=1, description="The revision to bring back, from list_working_memory_revisions.")


class Nothing(NoArguments, extra="forbid"):
    """No arguments, and none accepted."""


_THREAD = (str, Field(description="The thread whose working memory or messages are meant."))
_REVISION = (
    Whole | None,
    Field(
        None,
        description="The revision that get_working_memory returned. Without it, `memory` only adds.",
    ),
)
_TEXT = (str | None, Field(None, description="Text to add. With `revision`, it replaces the text of that revision."))


def with_more(schema: type[BaseModel], *, thread: bool = False, revision: bool = False) -> type[BaseModel]:
    """Add the arguments that name a thread and a revision."""
    more: dict[str, Any] = {"thread_id": _THREAD} if thread else {}
    more |= {"revision": _REVISION} if revision else {}
    if revision and schema.model_fields["memory"].annotation == str | None:
        more["memory"] = _TEXT
    return create_model(schema.__name__, __base__=schema, **more) if more else schema


def json_schema(schema: Any) -> dict[str, Any]:
    """Return the JSON schema of arguments, or of a `TypedDict`, without references and titles."""
    made = TypeAdapter(schema).json_schema()
    found: dict[str, Any] = _plain(dereference_refs(made))
    return {
        "type": "object",
        "properties": found.get("properties", {}),
        **({"required": found["required"]} if found.get("required") else {}),
        "additionalProperties": False,
    }


def _plain(schema: Any) -> Any:
    """Leave out titles, which repeat the names; a field may have the name `title`."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _plain(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
