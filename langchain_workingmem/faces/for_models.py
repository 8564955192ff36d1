"""What a model reads when memory refuses its call: what was wrong, and what to call instead.

A program reads the same errors in words of Python. A model can change only its arguments, so options, ids of the run
and servers are not named to it; they go to the log.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationError

from langchain_workingmem import errors
from langchain_workingmem._text.nesting import UNKNOWN, problems_in
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import OptionError, Remedy, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langchain_core.tools import StructuredTool
    from pydantic import BaseModel

    from langchain_workingmem._engine.plan import Plan

# Of a tool: description, schema of the arguments, and plan. Before these, the plan takes the ids and the step of the graph:
# the same for all calls of one answer; outside of a graph None, or the document that the caller has read.
Parts: TypeAlias = "tuple[str, type[BaseModel], Callable[..., Plan[str]]]"

_log = logging.getLogger("langchain_workingmem")

AWAY = "Memory is not available at the moment. Go on without it, and do not claim to have remembered anything."
NOT_HERE = "Memory cannot be used in this conversation. Go on without it, and do not claim to have remembered anything."
_DELETED = "The memory of this user is being deleted, so nothing was kept. Go on without it."
WIDEST = 4_000  # characters

WORDS = {  # what remedies name, for a model; one that names more than these is not for it
    "file_directory": "view",
    "file_new": "create",
    "files": "view",
    "max_bytes": "tell the user that there is no room for more in files",
    "max_file_bytes": "leave something out",
    "max_files": "tell the user that there is no room for more files",
    "messages": "search_memory",
    "or_max_bytes": "",
    "read_again": "read it again",
    "rewrite": "send everything that still holds once, in the form that the tool takes",
    "writable": "go on without changing it",
}
REFUSED = (*errors.OF_FILES, OptionError, errors.ReadOnlyError)  # a call on files
_TOLD = (
    errors.MessageNotFoundError,
    errors.RevisionNotFoundError,
    errors.WorkingMemoryConflictError,
    errors.WorkingMemoryValidationError,
)


def for_model(error: WorkingMemError, tool: str, *, words: Mapping[str, str] = WORDS) -> str:
    """Say an error of a tool to a model, its tools named as in `words`; `AWAY` if nothing that it can call helps.

    Of wrong arguments those are told whose remedy is a `Remedy`; all others come from the program's options.
    """
    is_told = isinstance(error, (*REFUSED, *_TOLD)) and (
        not isinstance(error, OptionError) or isinstance(error.remedy, Remedy)
    )
    with suppress(KeyError):
        if is_told:
            return shortened(error.worded(words))
    _log.warning("%s tells the model that memory is not available: %s", tool, error)
    if isinstance(error, errors.UserDeletedError):
        return _DELETED
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
    names = f". The tool takes {', '.join(known) or 'no arguments'}" if UNKNOWN in reasons else ""
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
