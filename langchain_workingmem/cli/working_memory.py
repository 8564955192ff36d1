"""`working-memory`: read and change the facts that an agent keeps; `keep`: let the keeper of a program read what was said.

Redis does not hold the program's template or schema. So a document is either text or a JSON object, only `clear` allows a
change from one to the other, and no command drops an old revision.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.checks import LARGEST
from langchain_workingmem.cli.base import MaxBytes, Newest, Output, Owner, Restored, Target, existing, misused
from langchain_workingmem.cli.streams import parsed, reading, revisions
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import (
    ModelError,
    OptionError,
    ResourceDeletedError,
    RevisionNotFoundError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.memory import Memory  # noqa: TC001 - typer reads annotations
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.threads import all_threads
from langchain_workingmem.working_memory import change_working_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.models import Thread, WorkingMemoryState

Revision = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is the empty start.")]
GONE = (ThreadNotFoundError, ThreadOwnershipError, ResourceDeletedError)  # since the threads were listed
IN_A_ROW = 3  # threads at which the model fails before the command gives up
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


def history(memory: Memory, owner: Owner, *, limit: Newest = 20) -> Output:
    """List the kept revisions, the newest first."""
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


# ---------------------------------------------------------------------- keep


def keep(
    thread: Annotated[str | None, typer.Argument(help="The id of a thread.")] = None,
    *,
    resource: Annotated[str | None, typer.Option(help="Read all threads of this resource.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Read all threads of all resources.")] = False,
    program: Annotated[
        str,
        typer.Option("--memory", metavar="MODULE:NAME", help="A Memory of a program, or a function that returns one."),
    ],
    target: Target,
) -> Output:
    """Let the keeper of working memory read what was said, and write what follows for the document.

    Schema, template, model and Redis are those of the program's Memory. Pass a thread, --resource or --all. It is safe to run
    this at any time, at once with the program or with itself, and again. Exit code 1 if the model failed; its messages then wait.
    """
    if [thread is not None, resource is not None, everything].count(True) != 1:
        misused("pass a thread, --resource for all threads of a resource, or --all: one of them")
    with target.of_program(program, "none") as memory:
        if thread is not None:
            threads = [existing(memory, thread, None)]
        else:
            threads = memory._core.run(all_threads(memory._core.state, resource))
        changed, failures = _keep(memory, threads)
    count = {"threads": len(threads), "changed": changed, "failed": len(failures)}
    yield count, f"{len(threads):,} threads were read, {changed:,} of them changed working memory"
    if failures:
        id, error = failures[0]
        more = f" and {len(failures) - 1:,} more" if len(failures) > 1 else ""
        raise ModelError(
            f"the model gave no usable answer for thread {id!r}{more} ({shorten(' '.join(error.split()), 400)}); "
            "the messages wait",
            remedy="check the model of the program and its key, and run this again",
        )


def _keep(memory: Memory, threads: Sequence[Thread]) -> tuple[int, list[tuple[str, str]]]:
    """Read threads, the oldest first; return how many changed a document, and at which ones the model failed, with its errors.

    A model that fails at `IN_A_ROW` threads is not asked about the others.
    """
    from tqdm.auto import tqdm

    changed, in_a_row = 0, 0
    failures: list[tuple[str, str]] = []
    waiting = sorted(threads, key=lambda one: one.updated_at)
    for thread in tqdm(waiting, desc="keep", unit=" threads", disable=not sys.stderr.isatty()):
        with suppress(*GONE):
            ids = {"thread_id": thread.id, "resource_id": thread.resource_id}
            before = memory.working_memory.get(**ids).revision
            report = memory.working_memory.keep(thread.id, resource_id=thread.resource_id)
            changed += report.memory.revision > before
            in_a_row = in_a_row + 1 if report.has_failed else 0
            if report.has_failed:
                failures.append((thread.id, report.last_error or "no answer"))
        if in_a_row == IN_A_ROW:
            break
    return changed, failures


COMMANDS = (get, set_, clear, history, diff, revert)
