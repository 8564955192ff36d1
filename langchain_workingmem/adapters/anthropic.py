"""Files as Claude's memory tool in Anthropic's SDK: `client.beta.messages.tool_runner(tools=[MemoryTool(...)])`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from langchain_workingmem._redis.state import operation, twin
from langchain_workingmem.adapters import FilesOfOwner
from langchain_workingmem.adapters.claude import DELETE, ROOT, CommandError, run_command
from langchain_workingmem.errors import FileMissingError, WorkingMemError
from langchain_workingmem.faces.tools import for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.memory import Memory


class _OnFiles(FilesOfOwner):
    """What both tools share. `user_id` is the owner: a user, or a team; nothing else names it outside of a graph."""

    def __init__(self, memory: Memory, *, user_id: str, by: str | None = "agent") -> None:
        super(FilesOfOwner, self).__init__()  # of the SDK's tool
        FilesOfOwner.__init__(self, memory, user_id=user_id, by=by)

    @operation
    def run(self, command: Any) -> Plan[str]:
        """Run a command, and return what Claude is told; `ToolError` if it is refused."""
        try:
            return (yield from run_command(self, command if isinstance(command, dict) else command.to_dict()))
        except CommandError as error:
            raise ToolError(str(error)) from error
        except WorkingMemError as error:  # the SDK shows a model the `repr` of any other error
            raise ToolError(for_model(error, "the memory tool")) from error

    @operation
    def clear(self) -> Plan[str]:
        """Delete all files below `/memories`; their revisions stay."""
        with suppress(FileMissingError):
            yield from DELETE(self.files, ROOT, user_id=self.writer, by=self.by)
        return "All memory cleared"

    arun, aclear = twin(run), twin(clear)


class MemoryTool(_OnFiles, BetaAbstractMemoryTool):
    """Claude's memory tool (`memory_20250818`) on `memory.files`, below `/memories`; async: `AsyncMemoryTool`."""

    execute = view = create = str_replace = insert = delete = rename = _OnFiles.run
    call: Callable[..., str] = _OnFiles.run
    clear_all_memory = _OnFiles.clear


class AsyncMemoryTool(_OnFiles, BetaAsyncAbstractMemoryTool):
    """Async twin of `MemoryTool`."""

    execute = view = create = str_replace = insert = delete = rename = _OnFiles.arun
    call: Callable[..., Coroutine[object, None, str]] = _OnFiles.arun
    clear_all_memory = _OnFiles.aclear
