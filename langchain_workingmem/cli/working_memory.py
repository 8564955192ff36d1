"""`working-memory`: read and change the facts that an agent keeps.

Redis does not hold the program's template or schema. So a document is either text or a JSON object, only `clear` allows a
change from one to the other, and no command drops an old revision.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from langchain_workingmem.checks import LARGEST
from langchain_workingmem.cli.base import AsJson, MaxBytes, Owner, Target, misused
from langchain_workingmem.cli.streams import parsed, reading, show, text
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, RevisionNotFoundError
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.working_memory import change_working_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryState

Revision = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is the empty start.")]
NOT_KEPT = "revision {} is not kept: `workingmem working-memory history` lists the kept ones"
KEEP_ALL = LARGEST  # revisions: only the program decides how many are kept


@contextmanager
def _opened(target: Target, owner: Owner, max_bytes: int = LARGEST) -> Iterator[Memory]:
    options = WorkingMemoryOptions(template="", scope=owner.scope(), revisions=KEEP_ALL, max_bytes=max_bytes)
    with target.opened_for(owner, working_memory=options) as memory:
        yield memory


def get(
    *,
    owner: Owner,
    raw: Annotated[bool, typer.Option("--raw", help="Only the document, as it is stored.")] = False,
    as_json: AsJson = False,
    target: Target,
) -> None:
    """Show working memory."""
    with _opened(target, owner) as memory:
        state = memory.working_memory.get(**vars(owner))
    if raw:
        terminal = sys.stdout.isatty()
        typer.echo(clean(state.text) if terminal else state.text, nl=terminal)
    else:
        _show(state, as_json=as_json)


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
    as_json: AsJson = False,
    target: Target,
) -> None:
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

    with _opened(target, owner, max_bytes) as memory:
        plan = change_working_memory(
            memory._core.state, owner.thread_id, owner.resource_id, make, "update", expected_revision
        )
        _, state = memory._core.run(plan)
    _show(state, as_json=as_json)


def clear(*, owner: Owner, as_json: AsJson = False, target: Target) -> None:
    """Empty working memory; `revert` restores it."""
    with _opened(target, owner) as memory:
        state = memory.working_memory.clear(**vars(owner))
    _show(state, as_json=as_json)


def history(
    *,
    owner: Owner,
    limit: Annotated[int, typer.Option(min=1, help="The number of revisions.")] = 20,
    as_json: AsJson = False,
    target: Target,
) -> None:
    """List the kept revisions, the newest first."""
    with _opened(target, owner) as memory:
        found = memory.working_memory.revisions(limit=limit, **vars(owner))
    if as_json:
        show(found, as_json=True)
        return
    rows = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("revision", "written (UTC)", "by", "bytes", "begins with"):
        rows.add_column(head, overflow="fold")
    for state in found:
        first = next((line for line in state.text.splitlines() if line.strip()), "(empty)")
        time = f"{state.updated_at:%Y-%m-%d %H:%M:%S}" if state.updated_at else ""
        cells = [str(state.revision), time, state.origin or "", f"{len(state.text.encode()):,}", first[:80]]
        rows.add_row(*map(text, cells))
    show(rows if found else "nothing was written yet", as_json=False, wide=True)


def diff(
    earlier: Revision = None, later: Revision = None, *, owner: Owner, as_json: AsJson = False, target: Target
) -> None:
    """Show the changes between two revisions: the last two, or from EARLIER to LATER (default: the current one)."""
    with _opened(target, owner) as memory:
        kept = {state.revision: state for state in memory.working_memory.revisions(limit=KEEP_ALL, **vars(owner))}
    if not kept:
        raise OptionError("nothing was written yet, so there is nothing to compare")
    last = max(kept) if later is None else later
    first = max((one for one in kept if one < last), default=0) if earlier is None else earlier
    for revision in (first, last):
        if revision not in kept and (revision or last == 0):
            raise OptionError(NOT_KEPT.format(revision))
    show(kept[last].diff(kept.get(first)), as_json=as_json)


def revert(
    revision: Annotated[int, typer.Argument(min=1, help="The revision to restore.")],
    *,
    owner: Owner,
    as_json: AsJson = False,
    target: Target,
) -> None:
    """Restore a revision, as a new one."""
    with _opened(target, owner) as memory:
        try:
            state = memory.working_memory.revert(revision, **vars(owner))
        except RevisionNotFoundError:
            raise OptionError(NOT_KEPT.format(revision)) from None
    _show(state, as_json=as_json)


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


def _show(state: WorkingMemoryState, *, as_json: bool) -> None:
    if as_json and is_object(state.text):
        state = replace(state, value=json.loads(state.text))
    show(state, as_json=as_json)


COMMANDS = (get, set_, clear, history, diff, revert)
