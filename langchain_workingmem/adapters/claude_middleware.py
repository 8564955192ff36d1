"""Claude's memory tool as middleware of `create_agent`, on `memory.files`; other models get it by its schema."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from langchain.agents.middleware import AgentMiddleware
from pydantic import BaseModel, Field

from langchain_workingmem.adapters import FilesOfOwner
from langchain_workingmem.adapters.claude import run_command
from langchain_workingmem.faces.tools import as_tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain_core.tools import BaseTool

    from langchain_workingmem._engine.plan import Plan

NAME, NATIVE = "memory", {"type": "memory_20250818", "name": "memory"}
DESCRIPTION = (
    "Your notes: files below /memories that stay between conversations. View that directory before you begin to work. "
    "Write down what a later conversation will need while you work: the conversation may end at any time. Keep the "
    "notes short and in order: correct or delete what no longer holds."
)


class Command(BaseModel):
    """Arguments of the tool."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: str | None = Field(None, description="A file or directory, such as /memories/notes.md.")
    view_range: list[int] | None = Field(None, description="view: the first and the last line; -1 is the end.")
    file_text: str | None = Field(None, description="create: the content of the new file.")
    old_str: str | None = Field(None, description="str_replace: the text to replace; it must be there exactly once.")
    new_str: str | None = Field(None, description="str_replace: the text instead.")
    insert_line: int | None = Field(None, description="insert: the line after which the text goes; 0 is the beginning.")
    insert_text: str | None = Field(None, description="insert: the text.")
    old_path: str | None = Field(None, description="rename: the present path.")
    new_path: str | None = Field(None, description="rename: the new path.")


class ClaudeMemoryMiddleware(FilesOfOwner, AgentMiddleware[Any, Any]):
    """Give an agent the memory tool, with files that stay between conversations, each user's own.

    A Claude model is offered its own tool `memory_20250818`, every other model a tool of the same name and commands.
    `user_id` fixes the owner; without it, it is the user of the run, as in `memory.tools`.
    """

    @cached_property
    def tools(self) -> list[BaseTool]:  # type: ignore[override]
        """Return the tool, which `create_agent` asks for."""
        return [as_tool(self._core, self._plan, NAME, DESCRIPTION, Command)]

    def _plan(self, _: Any, command: dict[str, Any]) -> Plan[str]:
        return (yield from run_command(self, command))

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Offer the tool to the model in its form."""
        return handler(self._with_tool(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Async twin of `wrap_model_call`."""
        return await handler(self._with_tool(request))

    def _with_tool(self, request: Any) -> Any:
        if "anthropic" not in str(getattr(request.model, "_llm_type", "")):
            return request
        other_tools = [tool for tool in request.tools if getattr(tool, "name", None) != NAME]
        return request.override(tools=[*other_tools, dict(NATIVE)])
