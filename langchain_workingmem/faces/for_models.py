"""What a model reads when memory refuses its call: what was wrong, and what to call instead.

A model can change only its arguments, so errors of options, ids and servers are not told to it; they go to the log.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationError

from langchain_workingmem import errors
from langchain_workingmem._text.unicode import visible
from langchain_workingmem._text.values import problems_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.errors import WorkingMemError

# Of a tool: description, schema of the arguments, and plan. Before these, the plan takes the ids and the step of the graph:
# the same for all calls of one answer; outside of a graph None, or the document that the caller has read.
Parts: TypeAlias = "tuple[str, type[BaseModel], Callable[..., Plan[str]]]"

_log = logging.getLogger("langchain_workingmem")

AWAY = "Memory is not available at the moment. Go on without it, and do not claim to have remembered anything."
NOT_HERE = "Memory cannot be used in this conversation. Go on without it, and do not claim to have remembered anything."
WIDEST = 4_000  # characters

_TOLD = (  # what a model can do something about
    *errors.OF_FILES,
    errors.ArgumentError,
    errors.ReadOnlyError,
    errors.WorkingMemoryConflictError,
    errors.WorkingMemoryValidationError,
)


def for_model(error: WorkingMemError, tool: str) -> str:
    """Say an error of a tool to a model; that memory is away if nothing that it can call helps."""
    if isinstance(error, _TOLD):
        return shortened(str(error))
    _log.warning("%s tells the model that memory is not available: %s", tool, error)
    is_here = not isinstance(error, errors.IdError | errors.ThreadNotFoundError | errors.ThreadOwnershipError)
    return AWAY if is_here else NOT_HERE


def shortened(text: str) -> str:
    """Return a text without characters that nobody sees, and not longer than a model should read."""
    text = visible(text)
    return text if len(text) <= WIDEST else f"{text[:WIDEST]} ..."


def describe_invalid(error: Any, known: Iterable[str] = ()) -> str:
    """Say which arguments do not fit; `known` are the names of those that the tool has."""
    if not isinstance(error, ValidationError):
        return shortened(f"Nothing was done. {error}")
    reasons = "; ".join(f"{field}: {reason}" for field, reason in problems_in(error))
    unknown = "Extra inputs are not permitted"  # Pydantic's words
    names = f". The tool takes {', '.join(known) or 'no arguments'}" if unknown in reasons else ""
    reasons = reasons.replace(unknown, "there is no such argument")
    return shortened(f"Nothing was done. The arguments are invalid: {reasons}{names}")


def as_tool(
    run: Callable[..., Any], arun: Callable[..., Any], name: str, description: str, schema: type[BaseModel]
) -> StructuredTool:
    """Make a tool of LangChain, sync and async, that tells a model what was refused."""
    from langchain_core.tools import StructuredTool  # slow, and an MCP server has no use for it

    return StructuredTool.from_function(
        run,
        arun,
        name=name,
        description=description,
        args_schema=schema,
        infer_schema=False,
        handle_tool_error=True,
        handle_validation_error=partial(describe_invalid, known=schema.model_fields),
    )


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        msg = "Input should be a number, not true or false"
        raise ValueError(msg)  # noqa: TRY004 - Pydantic takes no other
    return value


Whole = Annotated[int, BeforeValidator(_no_boolean)]  # Pydantic takes true for 1
