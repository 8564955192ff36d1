"""`working-memory`: read and change the facts that an agent keeps.

Redis does not hold the program's template or schema. So a document is either text or a JSON object, only `clear` allows a
change from one to the other, and no command drops an old revision.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langchain_workingmem.checks import LARGEST
from langchain_workingmem.cli.base import MaxBytes, Newest, Output, Owner, Restored, Target, misused, tell
from langchain_workingmem.cli.streams import parsed, reading, revisions, values
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, RevisionNotFoundError
from langchain_workingmem.keeping import messages_behind
from langchain_workingmem.models import Page
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.remembered import not_kept
from langchain_workingmem.working_memory import change_working_memory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryState

Revision = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is the empty start.")]
ValuePath = Annotated[
    str | None, typer.Argument(metavar="PATH", help="A value, such as /city; `sources` lists the paths.")
]
KEEP_ALL = LARGEST  # revisions: only the program decides how many are kept


def opened(target: Target, owner: Owner, max_bytes: int = LARGEST) -> AbstractContextManager[Memory]:
    """Open the memory for the working memory of an owner."""
    options = WorkingMemoryOptions(template="", scope=owner.scope(), revisions=KEEP_ALL, max_bytes=max_bytes)
    return target.opened_for(owner, working_memory=options)


def get(
    memory: Memory,
    owner: Owner,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Only the document, as it is stored.")] = False,
) -> Output:
    """Show working memory."""
    state = memory.working_memory.get(**vars(owner))
    if raw:
        terminal = sys.stdout.isatty()
        typer.echo(clean(state.text) if terminal else state.text, nl=terminal)
    else:
        yield _shown(state)


def set_(
    content: Annotated[str | None, typer.Argument(help="The new content; - is standard input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the content from a file.")] = None,
    mode: Annotated[
        Literal["replace", "merge", "append"],
        typer.Option(help="replace the document, merge fields of JSON (null deletes), or append."),
    ] = "replace",
    schema: Annotated[Path | None, typer.Option(help="A JSON schema for the document.")] = None,
    expected_revision: Annotated[int | None, typer.Option(min=0, help="Fail if there is a later revision.")] = None,
    max_bytes: MaxBytes = 65536,
    owner: Owner,
    target: Target,
) -> Output:
    """Write working memory: text, or a JSON object.

    A JSON object stays a JSON object and text stays text, so that the program can still read it. Run `clear` before a
    change from one to the other.
    """
    given = _content(content, file)
    options = WorkingMemoryOptions(schema={"type": "object"}) if is_object(given) else WorkingMemoryOptions(template="")
    if schema is not None:
        with reading(str(schema)) as lines:
            options = WorkingMemoryOptions(schema=parsed(lines.read(), str(schema)))

    def make(_: Format, before: str) -> str:
        if before.strip() and is_object(before) != is_object(given):
            names = ("text", "a JSON object")
            raise OptionError(
                f"working memory holds {names[is_object(before)]}, and the content is {names[is_object(given)]}, which its "
                "program could not read; nothing was changed",
                remedy="to replace it, run `workingmem working-memory clear` first",
            )
        return options.format.apply(before, given, mode)

    with opened(target, owner, max_bytes) as memory:
        plan = change_working_memory(
            memory._core.state, owner.thread_id, owner.resource_id, make, "update", expected_revision
        )
        _, state = memory._core.run(plan)
    yield _shown(state)


def clear(memory: Memory, owner: Owner) -> Output:
    """Empty working memory; `revert` restores it."""
    yield _shown(memory.working_memory.clear(**vars(owner)))


def sources(memory: Memory, owner: Owner, path: ValuePath = None) -> Output:
    """List the values, and since when each holds; or show the messages behind the value at PATH.

    A program with a keeper records this.
    """
    state = memory.working_memory.get(**vars(owner))
    if path is None:
        if state.timeline is None:
            raise not_kept()
        present = [found[0] for found in state.timeline.values() if found[0].is_set]
        yield present, values(present, "path", "nothing is known")
        return
    messages = memory._core.run(messages_behind(memory._core.state, state.sources(path), owner.resource_id))
    if not messages:
        tell(f"No message is behind {path}: {state.history(path)[0].origin} wrote it.")
    yield messages, Page(items=messages, total=len(messages))


def history(memory: Memory, owner: Owner, path: ValuePath = None, *, limit: Newest = 20) -> Output:
    """List the kept revisions, the newest first; or what the value at PATH is and was."""
    if path is not None:
        earlier = memory.working_memory.get(**vars(owner)).history(path)[:limit]
        yield earlier, values(earlier, "until", "")
        return
    found = memory.working_memory.revisions(limit=limit, **vars(owner))
    begins = (next((line for line in one.text.splitlines() if line.strip()), "(empty)")[:80] for one in found)
    rows = ((one, f"{len(one.text.encode()):,}", first) for one, first in zip(found, begins, strict=True))
    yield found, revisions("bytes|begins with", rows, "nothing was written yet")


def diff(memory: Memory, owner: Owner, earlier: Revision = None, later: Revision = None) -> Output:
    """Show the changes between two revisions: the last two, or from EARLIER to LATER (default: the current one)."""
    kept = {state.revision: state for state in memory.working_memory.revisions(limit=KEEP_ALL, **vars(owner))}
    if not kept:
        raise OptionError("nothing was written yet, so there is nothing to compare")
    last = max(kept) if later is None else later
    first = max((one for one in kept if one < last), default=0) if earlier is None else earlier
    for revision in (first, last):
        if revision not in kept and (revision or last == 0):
            raise RevisionNotFoundError(revision)
    yield kept[last].diff(kept.get(first))


def revert(memory: Memory, owner: Owner, revision: Restored) -> Output:
    """Restore a revision, as a new one."""
    yield _shown(memory.working_memory.revert(revision, **vars(owner)))


def undo(
    memory: Memory,
    owner: Owner,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The value; `sources` lists the paths.")],
) -> Output:
    """Set the value at PATH back to the one before it, or remove it. The other values stay."""
    yield _shown(memory.working_memory.undo(path, **vars(owner)))


def _content(argument: str | None, file: Path | None) -> str:
    if (argument is None) == (file is None):
        misused("pass the content as an argument, as - for standard input, or as --file: only one of them")
    content = argument or ""
    if file is not None or argument == "-":
        with reading(str(file or "-")) as lines:
            content = lines.read()
    if not content.strip():
        misused("the content is empty: `workingmem working-memory clear` empties working memory")
    return content


def is_object(document: str) -> bool:
    """Tell whether a document is a JSON object; else it is text."""
    try:
        return isinstance(json.loads(document), dict)
    except (ValueError, RecursionError):
        return False


def _shown(state: WorkingMemoryState) -> tuple[WorkingMemoryState, WorkingMemoryState]:
    """Return what JSON and what people read."""
    return replace(state, value=json.loads(state.text)) if is_object(state.text) else state, state


COMMANDS = (get, set_, clear, sources, history, diff, revert, undo)
