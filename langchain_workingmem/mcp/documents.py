"""Working memory as tools of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import TextFormat
from langchain_workingmem._documents.merging import append_text
from langchain_workingmem._redis.state import ShownDocument
from langchain_workingmem._text.rendering import unescape
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import OptionError, ReadOnlyError, Remedy
from langchain_workingmem.faces.tools import MAKERS
from langchain_workingmem.mcp import answers
from langchain_workingmem.mcp.arguments import ListRevisions, Nothing, Revert, with_more
from langchain_workingmem.mcp.offers import Tool, thread_of
from langchain_workingmem.mcp.results import Changed, Document, Revisions
from langchain_workingmem.options import Ids
from langchain_workingmem.working_memory import describe_change, parse_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.mcp.answers import Answer
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.options import WorkingMemoryOptions

OBJECT = (
    "working memory is a JSON object of a program, whose schema is not known here; it is shown, and nothing was changed"
)
# The tool of agents replaces the text; an MCP client may not have read it.
_ADDS = (
    "Remember facts, or correct them. `memory` is added to the stored text. With the `revision` that you have read, it replaces "
    "that text."
)
TEXT_ADDS = (
    f"{_ADDS} Use `edits` to correct or delete single places; they need no revision. Keep the form of the template."
)
FIELDS_ADD = f"{_ADDS} To delete fields, name them in `clear`; null deletes nothing."
LIST_REVISIONS = "List the kept revisions of working memory, the newest first, each with its time and its changes."
REVERT = "Undo changes of working memory: bring back the text of an older revision. It becomes the newest revision."


class WorkingMemoryTools:
    """The tools, over one memory."""

    def __init__(self, memory: Memory, options: WorkingMemoryOptions) -> None:
        self._memory, self._options, self._core, self._part = memory, options, memory._core, memory.working_memory

    def offered(self) -> Iterator[Tool]:
        """Yield the tools that the options allow."""
        thread, options = self._options.scope == "thread", self._options
        empty = with_more(Nothing, thread=thread)
        yield Tool("get_working_memory", MAKERS["get_working_memory"](self._core)[0], empty, Document, self.get)
        if options.revisions > 1:
            listing = with_more(ListRevisions, thread=thread)
            yield Tool("list_working_memory_revisions", LIST_REVISIONS, listing, Revisions, self.revisions)
        if options.read_only:
            return
        about, arguments, _ = MAKERS["update_working_memory"](self._core)
        revision = options.format.default_mode == "replace"
        if revision:
            about = TEXT_ADDS if isinstance(options.format, TextFormat) else FIELDS_ADD
        arguments = with_more(arguments, thread=thread, revision=revision)
        yield Tool("update_working_memory", about, arguments, Changed, self.update, writes=True, again=False)
        about = MAKERS["clear_working_memory"](self._core)[0]
        yield Tool("clear_working_memory", about, empty, Changed, self.clear, writes=True)
        if options.revisions > 1:
            chosen = with_more(Revert, thread=thread)
            yield Tool("revert_working_memory", REVERT, chosen, Changed, self.revert, writes=True)

    async def read(self, resource: str, thread_id: str | None = None) -> WorkingMemoryState:
        """Read working memory; with the scope "thread", of a thread that exists."""
        if thread_id is not None:
            await thread_of(self._memory, resource, thread_id)
        return await self._part.aget(thread_id=thread_id, resource_id=resource)

    async def get(self, resource: str, thread_id: str | None = None) -> Answer:
        """Read working memory."""
        return answers.of_working_memory(await self.read(resource, thread_id))

    async def update(
        self, resource: str, thread_id: str | None = None, revision: int | None = None, **change: Any
    ) -> Answer:
        """Change working memory as the tool of agents does, from the revision that the client has read; without one, only add."""
        state = await self._writable(resource, thread_id)
        form = self._form(state)
        seen = "" if revision is None else await self._at(state, revision, resource, thread_id)
        memory, hint = change.get("memory"), ""
        if revision is None and isinstance(form, TextFormat) and isinstance(memory, str) and not change.get("edits"):
            change["memory"], seen = _added(form, state.text, memory)
            hint = " It only added; to replace older lines, use `edits`, or pass this revision."
        _, _, make = MAKERS["update_working_memory"](self._core)
        answer = await self._core.arun(make(Ids(thread_id, resource), ShownDocument(seen), **change))
        after = await self._part.aget(thread_id=thread_id, resource_id=resource)
        return _changed(answer, after, hint)

    async def clear(self, resource: str, thread_id: str | None = None) -> Answer:
        """Empty working memory."""
        await self._writable(resource, thread_id)
        _, _, make = MAKERS["clear_working_memory"](self._core)
        answer = await self._core.arun(make(Ids(thread_id, resource), None))
        return _changed(answer, await self._part.aget(thread_id=thread_id, resource_id=resource))

    async def _writable(self, resource: str, thread_id: str | None) -> WorkingMemoryState:
        state = await self.read(resource, thread_id)
        form = self._form(state)
        if isinstance(form, TextFormat) and form.template.strip() and parse_document(state.text):
            raise ReadOnlyError(OBJECT, remedy="tell the user to connect the server of that program")
        return state

    def _form(self, state: WorkingMemoryState) -> Format:
        return self._core.state.remembering.format_for(state.template)

    async def _at(self, state: WorkingMemoryState, revision: int, resource: str, thread_id: str | None) -> str:
        """Return the text at a revision."""
        if revision in (0, state.revision):
            return state.text if revision else ""
        newer = max(1, state.revision - revision + 1)
        kept = await self._part.arevisions(limit=min(newer, 1000), thread_id=thread_id, resource_id=resource)
        found = next((one.text for one in kept if one.revision == revision), None)
        if found is None:
            raise OptionError(
                f"revision {revision} is not kept", remedy=Remedy("read the present one with get_working_memory")
            )
        return found

    async def revisions(self, resource: str, thread_id: str | None = None, limit: int = 10) -> Answer:
        """List revisions, with what each changed."""
        if thread_id is not None:
            await thread_of(self._memory, resource, thread_id)
        # one more, which the last one is compared with
        kept = await self._part.arevisions(limit=limit + 1, thread_id=thread_id, resource_id=resource)
        return answers.of_revisions(kept, limit, self._core.state.zone(thread_id, resource), self._form)

    async def revert(self, resource: str, revision: int, thread_id: str | None = None) -> Answer:
        """Bring an older revision back."""
        before = await self._writable(resource, thread_id)
        after = await self._part.arevert(revision, thread_id=thread_id, resource_id=resource)
        return _changed(describe_change(self._form(after), before.text, after.text), after)


def _changed(report: str, after: WorkingMemoryState, hint: str = "") -> Answer:
    data: Changed = {"revision": after.revision, "report": visible(report)}
    return f"{report}\n(revision {after.revision}){hint}", {**data}


def _added(form: TextFormat, text: str, sent: str) -> tuple[str, str]:
    """Return an update that only adds, and the text that it was made for: the client may not know what is there.

    A filled template is an update of the empty one. Other lines are added at the end, unless they stand there already.
    """
    lines = sent.splitlines()
    if (
        form.default_mode == "append"
        or form.is_empty(sent)
        or any(line.strip() and form.is_empty(line) for line in lines)
    ):
        return sent, ""
    known = {line.strip() for line in text.splitlines()}
    new = [line for line in map(unescape, lines) if line.strip() not in known]
    present = text if text.strip() else form.template
    whole = append_text(present, "\n".join(new)) if new else text
    return whole.replace("&", "&amp;"), text  # the tool takes the escaping of prompts back
