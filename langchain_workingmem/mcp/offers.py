"""A tool of the server, as clients are offered it, and what they are told of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mcp import types

from langchain_workingmem.errors import IdError, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.faces.for_models import WORDS, for_model, shortened
from langchain_workingmem.mcp.answers import no_thread
from langchain_workingmem.mcp.arguments import json_schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    from langchain_workingmem.mcp.answers import Answer
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Thread

_WORDS = {**WORDS, "files": "list_files", "read_again": "read it again with get_working_memory"}


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


def worded(error: WorkingMemError) -> str:
    """Say an error to a client, which names threads and messages by itself."""
    if isinstance(error, ThreadNotFoundError | ThreadOwnershipError):
        return no_thread(error.thread_id)
    return shortened(str(error)) if isinstance(error, IdError) else for_model(error, "the MCP server", words=_WORDS)


async def thread_of(memory: Memory, resource: str, thread_id: str) -> Thread:
    """Return a thread of the resource; one of somebody else is as one that does not exist."""
    found = await memory.threads.aget(thread_id, resource_id=resource)
    if found is None:
        raise ThreadNotFoundError(thread_id)
    return found
