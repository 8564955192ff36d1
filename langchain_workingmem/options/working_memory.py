"""The document that an agent keeps about its user or task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE, Format, JsonFormat, Mode, TextFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.checks import as_tuple, at_least, one_of, wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options.base import Placement, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class WorkingMemoryOptions:
    """The document that an agent keeps about its user or task: its format, scope and limits.

    Either a `template` (Markdown) or a `schema` (a Pydantic model, a TypedDict, a dataclass or a JSON schema); neither:
    the default template; `template=""`: free text. A schema names fields of an object; `{"type": "object"}` takes any.
    """

    template: str | None = None
    schema: Any = None
    scope: Scope = "user"  # one for all threads of a user, or one for each thread
    mode: Mode | None = None  # of updates; None: merge for a schema, replace for a template, append for free text
    read_only: bool = False  # shown, but neither the model nor `update` may change it
    placement: Placement = "question"  # a turn shows it before the user's words; "system": after your system prompt
    instructions: str | None = None  # what to remember, in the prompt; None: the default ones
    revisions: int = 20  # how many are kept, the present one included
    max_bytes: int = 65536  # of the document in UTF-8; a larger one is refused
    tools: Sequence[str] = ("update",)  # of `memory.tools()`: "get", "update", "clear"

    def __post_init__(self) -> None:
        if self.template is not None and self.schema is not None:
            raise OptionError("template and schema", remedy="pass one of them, working memory has one format")
        if not isinstance(self.template, str | None):
            raise wrong_type(self.template, "template", "pass Markdown as a str, or a schema")
        if not isinstance(self.instructions, str | None):
            raise wrong_type(self.instructions, "instructions", "pass a str, or None")
        one_of(self.scope, get_args(Scope), "scope")
        if self.mode is not None:
            one_of(self.mode, get_args(Mode), "mode")
        one_of(self.placement, get_args(Placement), "placement")
        at_least(self.revisions, 1, "revisions")
        at_least(self.max_bytes, 1, "max_bytes")
        object.__setattr__(self, "tools", as_tuple(self.tools, "tools", "'get', 'update', 'clear'"))
        for tool in self.tools:
            one_of(tool, ("get", "update", "clear"), "tools")
        self.format  # noqa: B018 - a mistake in template, schema or mode shows here

    @cached_property
    def format(self) -> Format:
        """Return what reads and writes the document."""
        if self.schema is not None:
            return JsonFormat(schema_of(self.schema), self.mode, self.max_bytes)
        return TextFormat(DEFAULT_TEMPLATE if self.template is None else self.template, self.mode)
