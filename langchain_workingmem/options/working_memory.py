"""The document that an agent keeps about its user or task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from langchain_workingmem.checks import as_tuple, at_least, check_model, check_roles, one_of, wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options.base import Placement, Scope
from langchain_workingmem.working_memory.document import DEFAULT_TEMPLATE, Format, JsonFormat, Mode, TextFormat
from langchain_workingmem.working_memory.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel

DEFAULT_TOOLS: Sequence[str] = ("update",)


@dataclass(frozen=True, kw_only=True)
class WorkingMemoryOptions:
    """The document that an agent keeps about its user or task: its format, scope and limits.

    Either a `template` (Markdown) or a `schema` (a Pydantic model, a TypedDict, a dataclass or a JSON schema); neither:
    the default template; `template=""`: free text. A schema names fields of an object; `{"type": "object"}` takes any.

    With a `keeper` a model keeps the document beside the conversation: it reads what was said, and each value has its sources, and since
    when it holds. Then the agent gets no tools of working memory, unless `tools` are passed.
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
    tools: Sequence[str] = (
        DEFAULT_TOOLS  # of `memory.tools()`: "get", "update", "clear"; with a keeper none are the default
    )
    # The chat model that keeps it beside the agent, or its name such as "openai:gpt-5-mini"; None: nobody
    keeper: BaseChatModel | str | None = None
    keep_after: int = 0  # tokens of messages in a thread that the keeper waits for; 0: it reads after each turn
    background: bool = True  # the keeper works after a turn is saved; False: only when `keep` is called
    # Roles of messages that are a source: an operation of a keeper that cites none of them is left out
    trust: Sequence[str] = ("human", "tool")
    show_since: bool = False  # a prompt says since which day each value holds

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
        tools = () if self.keeper is not None and self.tools is DEFAULT_TOOLS else self.tools
        object.__setattr__(self, "tools", as_tuple(tools, "tools", "'get', 'update', 'clear'"))
        for tool in self.tools:
            one_of(tool, ("get", "update", "clear"), "tools")
        self._check_keeper()
        self.format  # noqa: B018 - a mistake in template, schema or mode shows here

    def _check_keeper(self) -> None:
        if self.keeper is not None:
            check_model(self.keeper, "keeper")
            if self.read_only:
                raise OptionError("keeper and read_only=True", remedy="pass one of them: a keeper changes the document")
        at_least(self.keep_after, 0, "keep_after")
        for name in ("background", "show_since"):
            if not isinstance(value := getattr(self, name), bool):
                raise wrong_type(value, name, "pass True or False")
        if self.keeper is None and (self.keep_after or not self.background):
            seen = f"keep_after={self.keep_after}" if self.keep_after else "background=False"
            raise OptionError(f"{seen} without a keeper", remedy="pass keeper=..., a model")
        object.__setattr__(self, "trust", check_roles(self.trust, "trust"))

    @cached_property
    def format(self) -> Format:
        """Return what reads and writes the document."""
        if self.schema is not None:
            return JsonFormat(schema_of(self.schema), self.mode, self.max_bytes)
        return TextFormat(DEFAULT_TEMPLATE if self.template is None else self.template, self.mode)
