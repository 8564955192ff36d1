"""A tool of the server, as clients are offered it, and what they are told of errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp import types
from pydantic import ValidationError

from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import (
    OF_FILES,
    PYTHON,
    MessageNotFoundError,
    OptionError,
    RevisionNotFoundError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.faces.tools import AWAY, FOR_THE_MODEL, describe_invalid
from langchain_workingmem.mcp.answers import no_thread
from langchain_workingmem.mcp.arguments import json_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    from langchain_workingmem.mcp.answers import Answer
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Thread

_log = logging.getLogger("langchain_workingmem")

WIDEST = 4_000  # characters of an error
_REPLIES: tuple[type[WorkingMemError], ...] = (
    *(*FOR_THE_MODEL, MessageNotFoundError, OptionError, RevisionNotFoundError),
    *OF_FILES,
)
_WORDS = {
    **PYTHON,
    "files": "list_files",
    "messages": "read_thread",
    "file_history": "list_file_revisions",
    "revisions": "list_working_memory_revisions",
}


class Tool(NamedTuple):
    """A tool that clients are offered."""

    name: str
    description: str
    arguments: type[BaseModel]
    result: type[Any]  # a `TypedDict`
    run: Callable[..., Awaitable[Answer]]  # takes the resource, and the arguments as keywords
    writes: bool = False  # then it can also change or remove what is there
    again: bool = True  # the same call once more changes nothing more

    def offer(self) -> types.Tool:
        """Describe it for clients."""
        title = self.name.replace("_", " ").capitalize()
        hints = types.ToolAnnotations(
            title=title,
            readOnlyHint=not self.writes,
            destructiveHint=self.writes,
            idempotentHint=self.again,
            openWorldHint=False,
        )
        return types.Tool(
            name=self.name,
            title=title,
            description=self.description,
            inputSchema=json_schema(self.arguments),
            outputSchema=json_schema(self.result),
            annotations=hints,
        )


def worded(error: WorkingMemError | ValidationError) -> str:
    """Say an error to a client. What comes from servers and their clients goes to the log only."""
    if isinstance(error, ThreadNotFoundError | ThreadOwnershipError):
        return no_thread(error.thread_id)
    if isinstance(error, (*_REPLIES, ValidationError)):
        text = visible(describe_invalid(error) if isinstance(error, ValidationError) else error.worded(_WORDS))
        return text if len(text) <= WIDEST else f"{text[:WIDEST]} ..."
    _log.warning("an MCP client is told that memory is not available: %s", error)
    return AWAY


async def thread_of(memory: Memory, resource: str, thread_id: str) -> Thread:
    """Return a thread of the resource; one of somebody else is as one that does not exist."""
    found = await memory.threads.aget(thread_id, resource_id=resource)
    if found is None:
        raise ThreadNotFoundError(thread_id)
    return found
