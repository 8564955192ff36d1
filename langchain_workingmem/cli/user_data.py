"""All data of users: `import`, `backfill`, `export`, `forget`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Form, Model, OneUser, Program, Target, ThreadId, UserId, Yes
from langchain_workingmem.cli.streams import dumps, parsed, parsed_lines, printed, reading, writing
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TextIO

_CHECKPOINTS = (
    "Checkpoints of LangGraph stay, with the messages in them: this command does not know your checkpointer. To delete them, too, "
    "call memory.users.delete(..., checkpointer=...) instead of it: later nobody knows which threads the user had."
)
_SOURCES = "JSON lines of `export`, conversations.json of ChatGPT, messages_to_dict of LangChain, or logs of OpenAI's APIs (.jsonl or JSON)."


def import_(
    file: Annotated[str, typer.Argument(help="The file to read; - is standard input.")],
    *,
    user: UserId = None,
    source: Annotated[
        Literal["workingmem", "chatgpt", "langchain", "openai"], typer.Option("--from", help=_SOURCES)
    ] = "workingmem",
    thread: ThreadId = None,
    embeddings: Model = "local",
    form: Form = "table",
    target: Target,
) -> None:
    """Read the threads of a user from a file. Stored data stays as it is, so an import can be repeated.

    With --from langchain or openai, the keys of the file are the thread ids; a file with a single list of messages needs
    --thread.
    """
    if source != "workingmem" and user is None:
        base.misused(f"a file of {source} names no user: pass --user")
    options = WorkingMemoryOptions(template="", max_bytes=2**30, revisions=base.KEEP_ALL)
    with reading(file) as lines, target.recalling(embeddings, make=True, working_memory=options) as memory:
        records = _records(lines, file, source, thread, user)
        report = memory.users.load(records, user_id=user)
    printed(form, report, _counts("imported", report))


def _records(lines: TextIO, name: str, source: str, thread: str | None, user: str | None) -> Iterator[dict[str, Any]]:
    if source == "workingmem":
        return parsed_lines(lines, name)
    from langchain_workingmem.importers import from_chatgpt, from_langchain, from_openai

    content: Any = [*parsed_lines(lines, name)] if name.endswith(".jsonl") else parsed(lines.read(), name)
    if source == "chatgpt":
        return from_chatgpt(content)
    if thread is not None:
        content = {thread: content}
    return from_langchain(content) if source == "langchain" else from_openai(content, user_id=user)


def backfill(
    checkpointer: Annotated[
        str,
        typer.Argument(metavar="MODULE:NAME", help="The checkpointer of your graph, or a function that returns it."),
    ],
    *,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|MODULE:FUNCTION",
            help="Who owns a thread: a key of its checkpoints' metadata, such as user_id, or a function of that metadata.",
        ),
    ] = None,
    user: UserId = None,
    thread: ThreadId = None,
    embeddings: Model = "local",
    program: Program = None,
    form: Form = "table",
    target: Target,
) -> None:
    """Store the conversations of a LangGraph checkpointer, with their times. It can be repeated, and goes on where it ended.

    Threads that memory cannot take are named at the end; they stay as they are.
    """
    if (owner is None) == (user is None):
        base.misused("pass --owner, or --user if all threads belong to one user: one of them")
    user_id: Any = user if owner is None else _owner_of(owner)
    remedy = "pass MODULE:NAME of a checkpointer, or of a function without arguments that returns one, also with `with`"
    with ExitStack() as stack:
        saver = base.imported(checkpointer, "backfill", remedy)
        if isinstance(saver, AbstractContextManager) and not hasattr(saver, "get_tuple"):
            saver = stack.enter_context(saver)
        memory = stack.enter_context(target.of_program(program, embeddings, make=True))
        report = memory.threads.backfill(
            saver,
            user_id=user_id,
            thread_ids=None if thread is None else [thread],
            progress=sys.stderr.isatty(),
        )
    printed(form, report, _counts("stored", report))
    if report.skipped:
        base.tell(f"skipped {report.skipped}: without messages, or their metadata says no {owner or 'owner'!r}")
    for id, reason in report.left.items():
        base.tell(f"left {id}: {reason}")


def _owner_of(owner: str) -> Callable[[Mapping[str, Any]], str | None]:
    if ":" not in owner:
        return lambda metadata: None if metadata.get(owner) is None else str(metadata[owner])
    remedy = "pass --owner MODULE:FUNCTION, a function of metadata that returns an owner or None"
    function: Callable[[Mapping[str, Any]], str | None] = base.imported(owner, "--owner", remedy, call=False)
    return function


def export(
    *,
    user: OneUser,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="With vectors, so that an import embeds nothing.")] = False,
    target: Target,
) -> None:
    """Write all data of a user as JSON lines."""
    with target.opened(working_memory=True) as memory:  # which takes out what a keeper has of deleted messages
        if base.nothing_yet(memory):
            raise typer.Exit(1)
        with writing(output) as file:
            for record in memory.users.export(user, vectors=vectors):
                file.write(dumps(record) + "\n")


def forget(*, user: OneUser, yes: Yes = False, form: Form = "table", target: Target) -> None:
    """Delete all data of a user, after asking. Call it again to continue an interrupted deletion."""
    with target.opened() as memory:
        base.tell(_CHECKPOINTS)
        if not yes:
            base.confirm(f"Delete all data of user {user!r} permanently?")
        report = memory.users.delete(user)
    printed(form, report, _counts("deleted", report))
    if not report.verified:
        raise OptionError("other programs wrote at the same time", remedy="end them, and call this again")
    base.tell(f"verified: no key of Redis names {user!r} any more")


def _counts(verb: str, report: Any) -> str:
    counts = [f"{name.replace('_', ' ')} {n:,}" for name, n in asdict(report).items() if type(n) is int and n]
    return f"{verb}: {', '.join(counts) or 'nothing'}"
