"""The tools by which a model changes working memory, reads it, or empties it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json, patch_between, without_padding, without_paths
from langchain_workingmem._redis.state import ShownDocument
from langchain_workingmem._text.nesting import check_depth, check_nesting
from langchain_workingmem._text.rendering import unescape
from langchain_workingmem._text.unicode import stored_quote
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory import (
    change_at_scope_key,
    change_working_memory,
    check_writable,
    describe_change,
    describe_no_change,
    find_scope_key,
    parse_document,
    read_working_memory,
    update_rules,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._documents.formats import Format, TextFormat
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.faces.for_models import Parts
    from langchain_workingmem.options import Ids

CLEAR = "Fields to delete, with dots for nested ones. A value in `memory` for the same field replaces it as a whole."


class Edit(BaseModel):
    """Replace one passage."""

    find: str = Field(description="Text to replace. Quote it exactly; it must occur exactly once in working memory.")
    replace: str = Field(description="Replacement text. Empty deletes the match.")


class NoArguments(BaseModel):
    """No arguments."""


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

        def change(_: Any, text: str, seen: str | None) -> str:
            if not patch and not names:
                raise describe_no_change(memory or {})
            if patch and not isinstance(parse_json(text or "{}"), dict):
                text = ""  # of another format: it stays as a revision
            if form.default_mode != "replace" or seen in (None, text):
                return form.apply(text, patch, None, names)
            # a whole document that meets a newer one changes what it changed of the one that was shown
            base = without_paths(parse_document(seen or ""), names)
            return form.apply(text, patch_between(base, form.schema.patch(patch)), "merge", names)

        return (yield from _changed(core, ids, step, change, partial(form.remark, patch, names)))

    shown = WithJsonSchema({"anyOf": [form.schema.update_schema, {"type": "null"}]})
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
        return json.loads(check_depth(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def _update_text(core: Core, form: TextFormat) -> Parts:
    def make(ids: Ids, step: Any, memory: str | None = None, edits: list[Edit] | None = None) -> Plan[str]:
        def change(form: TextFormat, text: str, seen: str | None) -> str:
            if memory and edits:
                raise WorkingMemoryValidationError(
                    "nothing was changed, because both `memory` and `edits` were sent", remedy="send one of them"
                )
            if edits:
                return form.edit(text, [_as_shown(edit, text) for edit in edits])
            if not (memory or "").strip() and form.default_mode == "append":
                raise describe_no_change({})
            return form.replace(text, unescape(memory or ""), seen)

        return (yield from _changed(core, ids, step, change))

    whole = "New text. It replaces" if form.default_mode == "replace" else "Text to add to"
    schema = create_model(
        "UpdateWorkingMemory",
        __config__=ConfigDict(extra="forbid"),
        memory=(str | None, Field(None, description=f"{whole} working memory.")),
        edits=(
            list[Edit] | None,
            Field(None, description="Replacements of single passages. Send them instead of `memory`."),
        ),
    )
    return f"Remember facts, or correct them. {update_rules(form)}", schema, make


def _as_shown(edit: Edit, text: str) -> tuple[str, str]:
    """Return find and replace as the text is stored: the prompt escapes some characters and leaves out others."""
    quoted = unescape(edit.find)
    if quoted != edit.find and edit.find in text:
        return edit.find, edit.replace
    return stored_quote(text, quoted), unescape(edit.replace)


def _changed(
    core: Core,
    ids: Ids,
    step: Any,
    make: Callable[[Any, str, str | None], str],
    remark: Callable[[str], str] = lambda _: "",
) -> Plan[str]:
    """Change working memory, and describe the change; `remark` adds to it, given the document before.

    `make` takes the format, the document, and the document as the model was shown it.
    """
    state, memo, thread_id = core.state, core.state.shown_documents, ids.thread_id
    options = check_writable(state)
    scope_key = yield from find_scope_key(state, thread_id, ids.user_id)
    seen = step.text if isinstance(step, ShownDocument) else memo.text(thread_id, scope_key.key, step)

    def change(form: Format, text: str) -> str:
        return make(form, text, seen)

    before, after = yield from change_at_scope_key(state, scope_key, change, "tool")
    form = options.format
    known = memo.text(thread_id, scope_key.key)
    if known is not None and isinstance(step, int):
        try:
            known = change(form, known)
        except WorkingMemoryValidationError:
            known = after.text
        memo.note(thread_id, scope_key.key, known, step)
    return "\n".join(filter(None, [describe_change(form, before.text, after.text), remark(before.text)]))


def reading_tool(core: Core) -> Parts:
    """Make the tool that reads working memory."""

    def make(ids: Ids, step: Any) -> Plan[str]:
        state = yield from read_working_memory(core.state, ids.thread_id, ids.user_id)
        core.state.shown_documents.note(ids.thread_id, state.key, state.text, step)
        return "Working memory is empty." if state.is_empty else state.text

    return "Read working memory, the facts that are kept between conversations.", NoArguments, make


def clearing_tool(core: Core) -> Parts:
    """Make the tool that empties working memory."""

    def empty(form: Format, text: str) -> str:
        return text if form.is_empty(text) else ""

    def make(ids: Ids, step: Any) -> Plan[str]:
        state = core.state
        check_writable(state)
        before, _ = yield from change_working_memory(state, ids.thread_id, ids.user_id, empty, "clear")
        if before.is_empty:
            return "Working memory was already empty. Nothing was changed."
        if step is not None and state.shown_documents.text(ids.thread_id, before.key) is not None:
            state.shown_documents.note(ids.thread_id, before.key, "", step)
        return "Working memory is empty now."

    return "Delete everything in working memory. Call this only when the user asks for it.", NoArguments, make
