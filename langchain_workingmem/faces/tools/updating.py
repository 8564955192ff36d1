"""The tools by which a model changes working memory, reads it, or empties it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from langchain_workingmem._engine.plan import compute
from langchain_workingmem._redis.state import Recent, ShownDocument
from langchain_workingmem._text.nesting import check_depth, check_nesting
from langchain_workingmem._text.rendering import unescape
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat, describe_change, unwrapped
from langchain_workingmem.working_memory.patch import shorten, without_padding
from langchain_workingmem.working_memory.prompt import update_rules
from langchain_workingmem.working_memory.schema import update_schema
from langchain_workingmem.working_memory.store import (
    COST,
    change_document,
    check_writable,
    find_scope_key,
    read_working_memory,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.faces.tools.searching import Parts
    from langchain_workingmem.options import Ids
    from langchain_workingmem.working_memory.document import Format, TextFormat

CLEAR = "Fields to delete, with dots for nested ones. A value in `memory` for the same field replaces it as a whole."
_MOST_LOST = 10  # lines that a refusal shows


class Edit(BaseModel):
    """Replace one passage."""

    find: str = Field(description="Text to replace. Quote it exactly; it must occur exactly once in working memory.")
    replace: str = Field(description="Replacement text. Empty deletes the match.")


class NoArguments(BaseModel):
    """No arguments."""


class _Refused(Recent[str, str]):
    """The text of the last update that would have taken away most of a document, by its key."""


def updating_tool(core: Core) -> Parts:
    """Make the tool that changes working memory."""
    form = core.state.remembering.format
    return _update_json(core, form) if isinstance(form, JsonFormat) else _update_text(core, form)


def _update_json(core: Core, form: JsonFormat) -> Parts:
    def make(ids: Ids, step: Any, *, memory: dict[str, Any] | None = None, clear: list[str] | None = None) -> Plan[str]:
        try:
            check_nesting(memory)
        except ValueError as error:
            seen = f"the update is not JSON, so nothing was changed ({error})"
            raise WorkingMemoryValidationError(seen, remedy="send JSON values") from error
        # a model fills fields that it has nothing to say about with null or empty values, so only `clear` deletes
        patch, names = unescape(without_padding(memory or {})), unescape(clear or [])
        if not patch and not names:
            seen, remedy = "null deletes nothing", "to delete a field, name it in `clear`"
            raise _no_change(seen, remedy) if memory else _no_change()

        def change(text: str, seen: str | None) -> str:
            return form.replace(text, patch, seen, names)

        return (yield from _changed(core, ids, step, change, len(repr(patch)), partial(form.remark, patch, names)))

    shown = WithJsonSchema({"anyOf": [update_schema(form.schema.json_schema), {"type": "null"}]})
    facts = Annotated[dict[str, Any] | None, BeforeValidator(_parsed), shown]
    arguments = create_model(
        "UpdateWorkingMemory",
        __config__=ConfigDict(extra="forbid"),
        memory=(facts, Field(None, description="Facts to store.")),
        clear=(list[str] | None, Field(None, description=CLEAR)),
    )
    return f"Remember facts, or correct them. {update_rules(form)}", arguments, make


def _parsed(value: Any) -> Any:
    """Read an object that a model sent as text."""
    try:
        return json.loads(check_depth(unwrapped(value))) if isinstance(value, str) else value
    except ValueError:
        return value


def _update_text(core: Core, form: TextFormat) -> Parts:
    def make(ids: Ids, step: Any, memory: str | None = None, edits: list[Edit] | None = None) -> Plan[str]:
        if memory and edits:
            raise WorkingMemoryValidationError(
                "nothing was changed, because both `memory` and `edits` were sent", remedy="send one of them"
            )
        whole = unescape(unwrapped(memory or ""))
        if not edits and not whole.strip() and form.default_mode == "append":
            raise _no_change()

        def change(text: str, seen: str | None) -> str:
            return (
                form.edit(text, [_as_shown(edit, text) for edit in edits]) if edits else form.replace(text, whole, seen)
            )

        return (yield from _changed(core, ids, step, change, len(whole), replaced_by=None if edits else whole))

    what = "New text. It replaces" if form.default_mode == "replace" else "Text to add to"
    schema = create_model(
        "UpdateWorkingMemory",
        __config__=ConfigDict(extra="forbid"),
        memory=(str | None, Field(None, description=f"{what} working memory.")),
        edits=(
            list[Edit] | None,
            Field(None, description="Replacements of single passages. Send them instead of `memory`."),
        ),
    )
    return f"Remember facts, or correct them. {update_rules(form)}", schema, make


def _no_change(seen: str = "the update is empty", remedy: str = "put what is new into `memory`") -> Exception:
    return WorkingMemoryValidationError(f"{seen}, so nothing was changed", remedy=remedy)


def _as_shown(edit: Edit, text: str) -> tuple[str, str]:
    """Return find and replace as the text is stored: the prompt escapes some characters."""
    quoted = unescape(edit.find)
    if quoted != edit.find and edit.find in text:
        return edit.find, edit.replace
    return quoted, unescape(edit.replace)


def _changed(
    core: Core,
    ids: Ids,
    step: Any,
    change: Callable[[str, str | None], str],
    size: int,
    remark: Callable[[str], str] = lambda _: "",
    *,
    replaced_by: str | None = None,
) -> Plan[str]:
    """Change working memory, and describe the change; `remark` adds to it, given the document before.

    `change` takes the document, and the document as the model was shown it. `replaced_by`: a whole text, which may not take most of the
    document away, unless it is sent again.
    """
    state, memo, thread_id = core.state, core.state.shown_documents, ids.thread_id
    form = check_writable(state).format
    scope_key = yield from find_scope_key(state, thread_id, ids.user_id)
    key, refused = scope_key.key, state.room(_Refused)
    seen = step.text if isinstance(step, ShownDocument) else memo.text(thread_id, key, step)
    is_repeated = refused.get(key) == replaced_by

    def guarded(_: Format, text: str) -> str:
        after = change(text, seen)
        lost = [] if replaced_by is None or isinstance(form, JsonFormat) else form.lost(text, after)
        if replaced_by and lost and not is_repeated:
            refused.put(key, replaced_by)
            raise _loses(lost)
        return after

    before, after = yield from change_document(state, scope_key, guarded, "tool", size=size)
    refused.pop(key)

    def answer() -> str:
        known = memo.text(thread_id, key)
        if known is not None and isinstance(step, int):
            try:  # of what others have written meanwhile, the model knows nothing yet
                known = change(known, seen)
            except WorkingMemoryValidationError:
                known = after.text
            memo.note(thread_id, key, known, step)
        return "\n".join(filter(None, [describe_change(form, before.text, after.text), remark(before.text)]))

    return (yield from compute(answer, COST * (len(before.text) + len(after.text))))


def _loses(lost: list[str]) -> WorkingMemoryValidationError:
    remedy = "Send what is new by `edits`, or the whole text with all that still holds; or the same text again if these lines are to go"
    lines = "".join(f"\n    {shorten(line)}" for line in lost[:_MOST_LOST])
    more = f"\n    and {len(lost) - _MOST_LOST} more" if len(lost) > _MOST_LOST else ""
    return WorkingMemoryValidationError(
        f"this text would take away more than half of working memory, so nothing was changed. {remedy}:{lines}{more}",
        remedy=remedy,
    )


def reading_tool(core: Core) -> Parts:
    """Make the tool that reads working memory."""

    def make(ids: Ids, step: Any) -> Plan[str]:
        state = yield from read_working_memory(core.state, ids.thread_id, ids.user_id)
        core.state.shown_documents.note(ids.thread_id, state.key, state.text, step)
        return "Working memory is empty." if state.is_empty else state.text

    return "Read working memory, the facts that are kept between conversations.", NoArguments, make


def clearing_tool(core: Core) -> Parts:
    """Make the tool that empties working memory."""

    def make(ids: Ids, step: Any) -> Plan[str]:
        state, memo = core.state, core.state.shown_documents
        check_writable(state)
        scope_key = yield from find_scope_key(state, ids.thread_id, ids.user_id)

        def empty(form: Format, text: str) -> str:
            return text if form.is_empty(text) else ""

        before, _ = yield from change_document(state, scope_key, empty, "clear", size=0)
        if before.is_empty:
            return "Working memory was already empty. Nothing was changed."
        if step is not None and memo.text(ids.thread_id, before.key) is not None:
            memo.note(ids.thread_id, before.key, "", step)
        return "Working memory is empty now."

    return "Delete everything in working memory. Call this only when the user asks for it.", NoArguments, make
