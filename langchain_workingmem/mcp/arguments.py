"""The arguments of the tools, as JSON schemas for clients and as checks of what they send."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.utils.json_schema import dereference_refs
from pydantic import BaseModel, Field, TypeAdapter, create_model

from langchain_workingmem.faces.tools import NoArguments, Search

MOST_MESSAGES, MOST_CHARACTERS = 100, 200_000  # of one call of save_messages, in all
MOST_THREADS, MOST_FOUND = 100, 50
LONGEST_QUERY = 10_000  # characters; recall looks at the first and the last 2,000
MOST_TOKENS = 20_000  # of all that a search shows


class NewMessage(BaseModel, extra="forbid"):
    """A message to save."""

    role: Literal["user", "assistant"] = Field(description="Who said it.")
    content: str = Field(description="The text. Send it complete and unchanged.")
    name: str | None = Field(
        None, max_length=200, description="Name of the speaker, if several people or agents speak."
    )
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

    limit: int = Field(20, ge=1, le=MOST_THREADS, description="Number of threads on a page.")
    cursor: str | None = Field(None, description="next_cursor of the previous page.")


class SearchMemory(Search, extra="forbid"):
    """Arguments of `search_memory`."""

    query: str = Field(max_length=LONGEST_QUERY, description=Search.model_fields["query"].description)
    limit: int | None = Field(
        None, ge=1, le=MOST_FOUND, description="Return at most this number of hits. Leave it out for the usual number."
    )


class Nothing(NoArguments, extra="forbid"):
    """No arguments, and none accepted."""


_THREAD = (str, Field(description="The thread whose working memory or messages are meant."))
_REVISION = (
    int | None,
    Field(None, description="The revision that get_working_memory returned. `memory` as a whole text needs it."),
)


def with_more(schema: type[BaseModel], *, thread: bool = False, revision: bool = False) -> type[BaseModel]:
    """Add the arguments that name a thread and a revision."""
    fields: dict[str, Any] = {"thread_id": _THREAD} if thread else {}
    fields |= {"revision": _REVISION} if revision else {}
    return create_model(schema.__name__, __base__=schema, **fields) if fields else schema


def json_schema(schema: Any) -> dict[str, Any]:
    """Return the JSON schema of arguments, or of a `TypedDict`, without references, which some clients do not follow."""
    inlined: dict[str, Any] = dereference_refs(TypeAdapter(schema).json_schema())
    return {"properties": {}, **{key: value for key, value in inlined.items() if key != "$defs"}}
