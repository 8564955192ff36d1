"""`working-memory`: the facts that an agent keeps, read and changed from outside.

The store does not say along which template or schema a program keeps its memory. So a document is text or a JSON object,
as it stands, nothing but `clear` turns one into the other, and no write here drops an old revision.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from langchain_workingmem.cli.base import AsJson, Dir, MaxBytes, Prefix, ResourceId, ThreadId, Url, misused, opened
from langchain_workingmem.cli.files import parsed, reading
from langchain_workingmem.cli.output import show, table, text
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, RevisionNotFoundError
from langchain_workingmem.options import LARGEST, WorkingMemoryOptions
from langchain_workingmem.working_memory import change_working_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryState

app = typer.Typer(no_args_is_help=True, help="The facts that an agent keeps: of a resource, or of one thread.")

Revision = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is the empty beginning.")]
KEEP_ALL = LARGEST  # revisions: how many are kept is up to the program whose memory this is


@contextmanager
def _remembering(
    url: str | None,
    directory: Path | None,
    prefix: str,
    resource: str | None,
    thread: str | None,
    max_bytes: int = LARGEST,
) -> Iterator[tuple[Memory, dict[str, str | None]]]:
    """Open working memory, of the thread if there is one, else of the resource, and say whose it is."""
    if resource is None and thread is None:
        misused("pass --resource, for what is kept about somebody, or --thread, for what is kept in one conversation")
    remembering = WorkingMemoryOptions(
        template="", scope="resource" if thread is None else "thread", revisions=KEEP_ALL, max_bytes=max_bytes
    )
    with opened(url, directory, prefix, working_memory=remembering) as memory:
        if thread is not None and memory.threads.get(thread, resource_id=resource) is None:
            msg = f"there is no thread {thread!r}: `workingmem threads` lists those that are"
            raise OptionError(msg)
        yield memory, {"resource_id": resource, "thread_id": thread}


@app.command("get")
def get(
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    raw: Annotated[bool, typer.Option("--raw", help="The document as it is stored, and nothing else.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Show working memory."""
    with _remembering(url, directory, key_prefix, resource, thread) as (memory, whose):
        state = memory.working_memory.get(**whose)
    if raw:
        seen = sys.stdout.isatty()
        typer.echo(clean(state.text) if seen else state.text, nl=seen)
    else:
        _show(state, as_json=as_json)


@app.command("set")
def set_(
    content: Annotated[str | None, typer.Argument(help="What to write; - is standard input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the content from a file.")] = None,
    mode: Annotated[
        Literal["replace", "merge", "append"],
        typer.Option(help="replace: this and nothing else; merge: fields of JSON, null deletes; append: add."),
    ] = "replace",
    schema: Annotated[Path | None, typer.Option(help="A JSON schema that the document must fit.")] = None,
    expected_revision: Annotated[
        int | None, typer.Option(min=0, help="Fail when somebody has written since this revision.")
    ] = None,
    max_bytes: MaxBytes = 65536,
    resource: ResourceId = None,
    thread: ThreadId = None,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Write working memory: text, or a JSON object.

    A JSON object stays one, and text stays text, so that the program that keeps this memory can still read it; `clear` comes
    before a change from one to the other.
    """
    given = _content(content, file)
    options = WorkingMemoryOptions(schema={"type": "object"}) if is_object(given) else WorkingMemoryOptions(template="")
    if schema is not None:
        with reading(str(schema)) as lines:
            options = WorkingMemoryOptions(schema=parsed(lines.read(), str(schema)))

    def make(_: Format, before: str) -> str:
        if before.strip() and is_object(before) != is_object(given):
            names = {True: "a JSON object", False: "text"}
            msg = (
                f"working memory holds {names[is_object(before)]}, and the content is {names[is_object(given)]}, which the "
                "program that keeps it could not read, so nothing was changed: run `workingmem working-memory clear` first, if "
                "that is what you want"
            )
            raise OptionError(msg)
        return options.format.apply(before, given, mode)

    with _remembering(url, directory, key_prefix, resource, thread, max_bytes) as (memory, _):
        plan = change_working_memory(memory.core.state, thread, resource, make, "update", expected_revision)
        _, state = memory.core.run(plan)
    _show(state, as_json=as_json)


@app.command("clear")
def clear(
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Empty working memory; `revert` brings it back."""
    with _remembering(url, directory, key_prefix, resource, thread) as (memory, whose):
        state = memory.working_memory.clear(**whose)
    _show(state, as_json=as_json)


@app.command("history")
def history(
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    limit: Annotated[int, typer.Option(min=1, help="How many revisions.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """List the revisions that are kept, the newest first."""
    with _remembering(url, directory, key_prefix, resource, thread) as (memory, whose):
        found = memory.working_memory.revisions(limit=limit, **whose)
    if as_json:
        show(found, as_json=True)
        return
    rows = table("revision", "written (UTC)", "by", "bytes", "begins with")
    for state in found:
        first = next((line for line in state.text.splitlines() if line.strip()), "(empty)")
        time = f"{state.updated_at:%Y-%m-%d %H:%M:%S}" if state.updated_at else ""
        cells = [str(state.revision), time, state.origin or "", f"{len(state.text.encode()):,}", first[:80]]
        rows.add_row(*map(text, cells))
    show(rows if found else Text("nothing was written yet"), as_json=False, wide=True)


@app.command("diff")
def diff(
    earlier: Revision = None,
    later: Revision = None,
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Show what changed between two revisions: the last two, or from EARLIER to LATER or to the present one."""
    with _remembering(url, directory, key_prefix, resource, thread) as (memory, whose):
        kept = {state.revision: state for state in memory.working_memory.revisions(limit=KEEP_ALL, **whose)}
    if not kept:
        msg = "nothing was written yet, so there is nothing to compare"
        raise OptionError(msg)
    last = max(kept) if later is None else later
    first = max((one for one in kept if one < last), default=0) if earlier is None else earlier
    for revision in (first, last):
        if revision not in kept and (revision or last == 0):
            raise _not_kept(revision)
    show(kept[last].diff(kept.get(first)), as_json=as_json)


@app.command("revert")
def revert(
    revision: Annotated[int, typer.Argument(min=1, help="The revision to bring back.")],
    *,
    resource: ResourceId = None,
    thread: ThreadId = None,
    as_json: AsJson = False,
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Bring a revision back, as a new one."""
    with _remembering(url, directory, key_prefix, resource, thread) as (memory, whose):
        try:
            state = memory.working_memory.revert(revision, **whose)
        except RevisionNotFoundError:
            raise _not_kept(revision) from None
    _show(state, as_json=as_json)


def _not_kept(revision: int) -> OptionError:
    return OptionError(f"revision {revision} is not kept: `workingmem working-memory history` lists those that are")


# ---------------------------------------------------------------------- documents


def _content(argument: str | None, file: Path | None) -> str:
    if (argument is None) == (file is None):
        misused("pass the content as an argument, as - for standard input, or as --file, and only one of them")
    if file is None and argument != "-":
        content = argument or ""
    else:
        with reading("-" if file is None else str(file)) as opened_file:
            content = opened_file.read()
    if not content.strip():
        misused("the content is empty: `workingmem working-memory clear` empties working memory")
    return content


def is_object(document: str) -> bool:
    """Tell whether a document is a JSON object; else it is text."""
    try:
        return isinstance(json.loads(document), dict)
    except (ValueError, RecursionError):
        return False


def _show(state: WorkingMemoryState, *, as_json: bool) -> None:
    if as_json and is_object(state.text):
        state = replace(state, value=json.loads(state.text))
    show(state, as_json=as_json)
