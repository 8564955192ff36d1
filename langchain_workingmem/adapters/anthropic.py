"""Files as Claude's memory tool in Anthropic's SDK: `client.beta.messages.tool_runner(tools=[MemoryTool(...)])`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from langchain_workingmem.adapters import OfOwner
from langchain_workingmem.adapters.claude import DELETE, ROOT, CommandError, run_command
from langchain_workingmem.errors import FileMissingError, WorkingMemError
from langchain_workingmem.faces.tools import for_model

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.memory import Memory


class _OnFiles(OfOwner):
    """What both tools share. `user_id` is the owner: a user, or a team; nothing else names it outside of a graph."""

    def __init__(self, memory: Memory, *, user_id: str, by: str | None = "agent") -> None:
        super(OfOwner, self).__init__()  # of the SDK's tool
        OfOwner.__init__(self, memory, user_id=user_id, by=by)

    def _plan(self, command: Any) -> Plan[str]:
        fields = command if isinstance(command, dict) else command.to_dict()
        try:
            owner = self.owner if fields.get("command") == "view" else self.writer
            return (yield from run_command(self.files, owner, self._by, fields))
        except CommandError as error:
            raise ToolError(str(error)) from error
        except WorkingMemError as error:  # the SDK shows a model the `repr` of any other error
            raise ToolError(for_model(error, "the memory tool")) from error

    def _clear(self) -> Plan[str]:
        with suppress(FileMissingError):
            yield from DELETE(self.files, ROOT, user_id=self.writer, by=self._by)
        return "All memory cleared"


class MemoryTool(_OnFiles, BetaAbstractMemoryTool):
    """Claude's memory tool (`memory_20250818`) on `memory.files`, below `/memories`; async: `AsyncMemoryTool`."""

    def execute(self, command: Any) -> str:
        """Run a command, and return what Claude is told; `ToolError` if it is refused."""
        return self._core.run(self._plan(command))

    view = create = str_replace = insert = delete = rename = execute

    def call(self, input: object) -> str:
        """Run a command as the model has written it."""
        return self.execute(input)

    def clear_all_memory(self) -> str:
        """Delete all files below `/memories`; their revisions stay."""
        return self._core.run(self._clear())


class AsyncMemoryTool(_OnFiles, BetaAsyncAbstractMemoryTool):
    """Async twin of `MemoryTool`."""

    async def execute(self, command: Any) -> str:
        """Run a command, and return what Claude is told; `ToolError` if it is refused."""
        return await self._core.arun(self._plan(command))

    view = create = str_replace = insert = delete = rename = execute

    async def call(self, input: object) -> str:
        """Run a command as the model has written it."""
        return await self.execute(input)

    async def clear_all_memory(self) -> str:
        """Delete all files below `/memories`; their revisions stay."""
        return await self._core.arun(self._clear())
