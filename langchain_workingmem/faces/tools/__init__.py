"""Tools by which a model reads and changes memory, for `bind_tools`, ToolNode, `create_agent` and bare `invoke`."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangChain injects it by its annotation

from langchain_workingmem._documents.filters import both
from langchain_workingmem._redis.access import check_thread
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.checks import as_tuple
from langchain_workingmem.errors import (
    OptionError,
    ReadOnlyError,
    WorkingMemError,
)
from langchain_workingmem.faces.for_models import as_tool, for_model
from langchain_workingmem.faces.ids import required_ids, resolve
from langchain_workingmem.faces.per_call import PerCall
from langchain_workingmem.faces.tools.searching import searching_tool
from langchain_workingmem.faces.tools.updating import clearing_tool, reading_tool, updating_tool
from langchain_workingmem.options import Ids
from langchain_workingmem.recall import checked_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.tools import BaseTool
    from pydantic import BaseModel

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core

# Description, schema of the arguments, and plan. The plan takes the ids and the step of the graph (the same for all calls of one
# answer; outside of a graph None, or the document that the caller has read) before the arguments.
_Parts: TypeAlias = "tuple[str, type[BaseModel], Callable[..., Plan[str]]]"

WRITING = ("update_working_memory", "clear_working_memory")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def memory_tools(
    core: Core,
    ids: Mapping[str, Any],
    *,
    include: Sequence[str] | None,
    name: str | None = None,
    read_only: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> list[BaseTool]:
    """Build the tools that `Memory.tools` describes, with `ids` as `resolve` takes them; with `read_only` without those that write."""
    check_name(name)
    if metadata is not None:
        checked_filter(core.state.recalling, metadata, core.state.thread_filters)
    chosen = _default_names(core) if include is None else as_tuple(include, "include", "tool names")
    for one in chosen:
        if one not in MAKERS:
            raise OptionError(f"there is no tool {one!r}", remedy=f"use {', '.join(MAKERS)}")
        if one.endswith("_working_memory") and core.state.remembering.read_only and one in WRITING:
            raise ReadOnlyError(f"{one} writes, and working memory is read-only", remedy="leave the tool out")
    find_ids = partial(resolve, **ids)
    chosen = [one for one in chosen if not (read_only and one in WRITING)]
    return [_tool(core, one, name, find_ids, metadata) for one in chosen]


def check_name(name: str | None) -> None:
    """Raise `OptionError` unless a name can be a part of a tool's name."""
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise OptionError(
            f"name={name!r}", remedy="use 1 to 40 letters, digits, - and _, as providers want them in names of tools"
        )


def _default_names(core: Core) -> list[str]:
    options = core.state.working_memory
    names = [f"{short}_working_memory" for short in options.tools] if options else []
    if options and options.read_only:
        names = [name for name in names if name not in WRITING]
    return [*names, "search_memory"] if core.state.recall else names


def _tool(core: Core, tool: str, memory: str | None, find_ids: Callable[..., Ids], metadata: Any) -> BaseTool:
    from langchain_core.tools import ToolException  # slow, and an MCP server has no use for it

    name = f"{tool}_{memory}" if memory else tool
    description, schema, make = MAKERS[tool](core)

    def make_checked(ids: Ids, step: int | None, arguments: dict[str, Any]) -> Plan[Any]:
        if ids.is_thread_alone and tool != "search_memory":  # the search checks the owner itself
            ids = Ids(*required_ids(ids))
            yield from check_thread(core.state, *required_ids(ids))
        return (yield from make(ids, step, **arguments))

    def plan(config: RunnableConfig, arguments: dict[str, Any]) -> Plan[Any]:
        try:
            if tool in WRITING and PerCall.of(config).read_only:
                raise ReadOnlyError(f"{name} writes, and this call is read-only", remedy="go on without it")
            ids = find_ids(config)
            if tool == "search_memory":
                arguments["timezone"] = PerCall.of(config).timezone
            if tool == "search_memory":
                arguments["metadata"] = both(metadata, (PerCall.of(config).recall or {}).get("metadata"))
            step = (config.get("metadata") or {}).get("langgraph_step")
            told = yield from core.with_breaker(make_checked(ids, step, arguments))
            return visible(told) if isinstance(told, str) else told
        except WorkingMemError as error:  # other errors are bugs
            raise ToolException(for_model(error, name)) from error

    def run(config: RunnableConfig, **arguments: Any) -> Any:
        return core.run(plan(config, arguments), tool)

    async def arun(config: RunnableConfig, **arguments: Any) -> Any:
        return await core.arun(plan(config, arguments), tool)

    return as_tool(run, arun, name, f"{description} It uses the memory {memory!r}." if memory else description, schema)


MAKERS: dict[str, Callable[[Core], _Parts]] = {
    "update_working_memory": updating_tool,
    "get_working_memory": reading_tool,
    "clear_working_memory": clearing_tool,
    "search_memory": searching_tool,
}
