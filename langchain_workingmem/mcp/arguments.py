"""The arguments of the tools, as JSON schemas for clients and as checks of what they send."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.utils.function_calling import convert_to_openai_function
from pydantic import BaseModel, ConfigDict, Field, create_model

from langchain_workingmem.faces.tools import NoArguments, Search

MOST_MESSAGES, MOST_CHARACTERS = 100, 1_000_000  # of one call of save_messages, in all
MOST_THREADS, MOST_READ = 100, 200  # of one page

_STRICT = ConfigDict(extra="forbid")
_CURSOR = "The next_cursor of the page before"


class NewMessage(BaseModel):
    """A message to save."""

    model_config = _STRICT

    role: Literal["user", "assistant"] = Field(description="Who said it")
    content: str = Field(description="Its text, complete and unchanged")
    name: str | None = Field(None, description="Name of the speaker, where several people or agents speak")
    id: str | None = Field(None, description="Your id of the message: saved again with the same id, it is stored once")


class SaveMessages(BaseModel):
    """Arguments of `save_messages`."""

    model_config = _STRICT

    messages: list[NewMessage] = Field(
        min_length=1, max_length=MOST_MESSAGES, description="The new messages, in their order"
    )
    thread_id: str | None = Field(
        None, description="The thread that goes on, or an id for a new one; leave it out for a new thread"
    )
    title: str | None = Field(None, max_length=500, description="A short title for the thread")


class ListThreads(BaseModel):
    """Arguments of `list_threads`."""

    model_config = _STRICT

    limit: int = Field(20, ge=1, le=MOST_THREADS, description="Threads on a page")
    cursor: str | None = Field(None, description=_CURSOR)


class ReadThread(BaseModel):
    """Arguments of `read_thread`."""

    model_config = _STRICT

    thread_id: str = Field(description="The thread, as list_threads and search_memory name it")
    start: Literal["newest", "oldest"] = Field(
        "newest", description="Where the first page is; the messages of a page are always in their order"
    )
    limit: int = Field(50, ge=1, le=MOST_READ, description="Messages on a page")
    cursor: str | None = Field(None, description=f"{_CURSOR}, with the same start and roles")
    roles: list[Literal["user", "assistant", "tool"]] | None = Field(
        None, min_length=1, description="Only messages of these roles"
    )


class SearchMemory(Search):
    """Arguments of `search_memory`."""

    model_config = _STRICT


class Nothing(NoArguments):
    """No arguments, and none accepted."""

    model_config = _STRICT


_THREAD = (str, Field(description="The thread whose memory it is"))
_REVISION = (
    int | None,
    Field(
        None,
        description="The revision that you read with get_working_memory. Of what is known you can remove or change only what "
        "you have read: without it, `memory` only adds",
    ),
)
_TEXT = (str | None, Field(None, description="Text that is added to what is there; with `revision`, that replaces it"))


def with_more(schema: type[BaseModel], *, thread: bool = False, revision: bool = False) -> type[BaseModel]:
    """Add the arguments that name a thread and a revision."""
    more: dict[str, Any] = {"thread_id": _THREAD} if thread else {}
    more |= {"revision": _REVISION} if revision else {}
    if revision and schema.model_fields["memory"].annotation == str | None:
        more["memory"] = _TEXT
    return create_model(schema.__name__, __base__=schema, **more) if more else schema


def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of arguments, without references."""
    parameters: dict[str, Any] = convert_to_openai_function(schema)["parameters"]
    return {**parameters, "additionalProperties": False}
