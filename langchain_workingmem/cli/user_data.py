"""All data of users: `import`, `backfill`, `export`, `forget`, `merge`; and `delete-messages`, for what is old."""

from __future__ import annotations

import json
import re
import sys
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeVar, cast

import typer

from langchain_workingmem._redis.codec import aware
from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import MaxBytes, Output, Program, Resource, ResourceId, Target, ThreadId, Yes  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.help import resource_ids
from langchain_workingmem.cli.streams import dumps, parsed, parsed_lines, reading, writing
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.errors import OptionError, RedisCapabilityError, ThreadOwnershipError
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.reports import DeletionReport, ImportReport, MergeReport
from langchain_workingmem.threads import all_threads
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from zoneinfo import ZoneInfo

    from langchain_workingmem.memory import Memory

R = TypeVar("R", ImportReport, DeletionReport, MergeReport)
_DONE = {ImportReport: "imported", DeletionReport: "deleted", MergeReport: "merged"}
_HELP = "Include the items of a LangGraph store below this namespace. Repeatable."
_CHECKPOINTS = (
    "Checkpoints of LangGraph stay, with the messages in them: this command does not know your checkpointer. To delete them, too, "
    "call memory.users.delete(..., checkpointer=...) instead of it: later nobody knows which threads the user had."
)
Namespaces = Annotated[list[str] | None, typer.Option("--namespace", metavar="A.B.{user_id}", help=_HELP)]


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - is standard input.")],
    *,
    resource: ResourceId = None,
    source: Annotated[
        Literal["workingmem", "chatgpt", "langchain", "openai"],
        typer.Option(
            "--from",
            help="JSON lines of `export`, conversations.json of ChatGPT, messages_to_dict of LangChain, or logs of OpenAI's APIs.",
        ),
    ] = "workingmem",
    thread: ThreadId = None,
    namespace: Namespaces = None,
    max_bytes: MaxBytes = 65536,
    embeddings: base.MaybeModel = "local",
    target: Target,
) -> Output:
    """Read the threads of a user from a file. Stored data stays as it is, so an import can be repeated.

    Examples:
        workingmem import maya.jsonl
        workingmem import conversations.json --from chatgpt --resource maya
        workingmem import logs.jsonl --from openai --resource maya

    With --from langchain or openai, the keys of the file are the thread ids; a file with a single list of messages needs
    --thread. A file of openai may also have a conversation on each line.
    """
    if source != "workingmem" and resource is None:
        base.misused(f"a file of {source} names no resource: pass --resource")
    options = WorkingMemoryOptions(template="", max_bytes=max_bytes)
    with reading(file) as lines:
        records = _records(lines, file, source, thread, resource)
        with target.recalling(embeddings, make=True, working_memory=options) as memory:
            names = as_namespaces(namespace)
            report = memory.users.load(records, resource_id=resource, namespaces=names)
    yield _reported(report)
    for path in report.files_left:
        base.tell(f"Another file is stored, or was deleted, and stays so: {path}")
    _hint_at_vectors(report.messages, embeddings)


def _hint_at_vectors(messages: int, embeddings: str) -> None:
    if messages and embeddings == "none":
        base.tell("The messages have no vectors yet: run `workingmem reindex`.")


def _records(
    lines: TextIO, name: str, source: str, thread: str | None, resource: str | None
) -> Iterator[dict[str, Any]]:
    if source == "workingmem":
        return parsed_lines(lines, name, "export again")
    from langchain_workingmem.importers import from_chatgpt, from_langchain, from_openai

    text = lines.read()
    if source == "openai" and _is_lines(text):
        return from_openai(parsed_lines(text.splitlines(), name), resource_id=resource)
    whole = parsed(text, name)
    if source == "chatgpt":
        return from_chatgpt(whole)
    if source == "openai" and isinstance(whole, dict) and whole.keys() & {"messages", "input", "output"}:
        whole = [whole]
    if isinstance(whole, list) and (source == "langchain" or _is_message(whole)):
        if thread is None:
            raise OptionError(f"{name} is a list of messages", remedy="pass --thread, the id for their thread")
        whole = {thread: whole}
    return from_langchain(whole) if source == "langchain" else from_openai(whole, resource_id=resource)


def _is_message(found: list[Any]) -> bool:
    """Tell whether a list begins with a message or item, and not with a conversation."""
    return bool(found) and isinstance(found[0], dict) and not found[0].keys().isdisjoint({"role", "type"})


def _is_lines(text: str) -> bool:
    """Tell whether there is a conversation on each line, and not one JSON text."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return bool(rest.strip())


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
    resource: ResourceId = None,
    thread: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this thread. Repeatable.")] = None,
    embeddings: base.MaybeModel = "local",
    program: Program = None,
    target: Target,
) -> Output:
    """Store the conversations of a LangGraph checkpointer, with their times. It can be repeated, and goes on where it ended.

    Examples:
        workingmem backfill program:saver --owner user_id
        workingmem backfill program:saver --resource maya --thread trip

    Threads that memory cannot take are named at the end; they stay as they are.
    """
    if (owner is None) == (resource is None):
        base.misused("pass --owner, or --resource if all threads belong to one resource: one of them")
    remedy = "pass MODULE:NAME of a checkpointer, or of a function without arguments that returns one, also with `with`"
    owner_of = _owner_of(owner) if resource is None else resource
    with ExitStack() as stack:
        saver = base.imported(checkpointer, "backfill", remedy)
        if isinstance(saver, AbstractContextManager) and not hasattr(saver, "get_tuple"):
            saver = stack.enter_context(saver)
        memory = stack.enter_context(target.of_program(program, embeddings, make=True))
        report = memory.threads.backfill(
            saver,
            resource_id=owner_of,
            thread_ids=thread,
            progress=sys.stderr.isatty(),
        )
    yield (
        report,
        f"stored: {counted(report.threads, 'thread')}, {counted(report.messages, 'message')}; known before: {report.known:,}, "
        f"without owner or messages: {report.skipped:,}, left: {len(report.left):,}",
    )
    for id, why in report.left.items():
        base.tell(f"left {id}: {why}")
    _hint_at_vectors(report.messages, embeddings)


def _owner_of(owner: Any) -> Callable[[Mapping[str, Any]], str | None]:
    if ":" in owner:
        remedy = "pass --owner MODULE:FUNCTION, a function of metadata that returns an owner or None"
        found = base.imported(owner, "--owner", remedy, call=False)
        if not callable(found):
            raise OptionError(f"--owner {owner} is of type {type(found).__name__}", remedy=remedy)
        return cast("Callable[[Mapping[str, Any]], str | None]", found)
    return lambda metadata: None if metadata.get(owner) is None else str(metadata[owner])


def export(
    memory: Memory,
    resource: Resource,
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: standard output.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="With vectors, so that an import embeds nothing.")] = False,
    namespace: Namespaces = None,
) -> None:
    """Write all data of a resource as JSON lines.

    Examples:
        workingmem export maya -o maya.jsonl --vectors
        workingmem export maya | gzip > maya.jsonl.gz
    """
    records = memory.users.export(resource, vectors=vectors, namespaces=as_namespaces(namespace))
    header, first = next(records), next(records)
    if first["kind"] == "end":
        raise _nothing(resource)
    with writing(output) as file:
        for record in chain((header, first), records):
            file.write(dumps(record) + "\n")


def _nothing(resource: str) -> OptionError:
    remedy = "`workingmem users` lists who has threads"
    return OptionError(f"nothing is stored for resource {resource!r}", remedy=remedy)


def forget(resource: Resource, *, namespace: Namespaces = None, yes: Yes = False, target: Target) -> Output:
    """Delete all data of a resource, after asking. Exit code 3: declined. Exit code 1: nothing is stored for it.

    Examples:
        workingmem forget maya
        workingmem forget maya --yes --namespace 'memories.{user_id}'

    Call it again to continue an interrupted deletion. Checkpoints of LangGraph are not deleted.
    """
    namespaces = as_namespaces(namespace)
    with target.opened(working_memory=WorkingMemoryOptions(template="")) as memory:
        stored = yes or _is_stored(memory, resource, namespaces)
        if stored:
            base.tell(_CHECKPOINTS)
        if stored and not yes:
            base.confirm(f"{_summary(memory, resource)}. Delete all of it permanently?")
        report = memory.users.delete(resource, namespaces=namespaces)
    said = _reported(report)
    yield said
    _check(report)
    if said[1].endswith(": nothing"):
        raise _nothing(resource)
    base.tell(f"verified: no key of Redis names {resource!r} any more")


def merge(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A resource, usually a guest.", autocompletion=resource_ids)
    ],
    *,
    into: Annotated[
        str, typer.Option(metavar="USER", help="The resource that gets all of it.", autocompletion=resource_ids)
    ],
    yes: Yes = False,
    target: Target,
) -> Output:
    """Give all data of a resource to another one, after asking. Exit code 3: declined.

    Examples:
        workingmem merge guest-7f3 --into maya

    Call it again to continue an interrupted merge. Checkpoints of LangGraph belong to threads, so they stay as they are.
    """
    with target.opened(working_memory=WorkingMemoryOptions(template="")) as memory:
        if not yes:
            base.confirm(f"{_summary(memory, source)}. Give all of it to {into!r} permanently?")
        report = memory.users.merge(source, into=into)
    yield _reported(report)
    for old, new in report.files_renamed.items():
        base.tell(f"The user has another file {old}, which stays; the other one is {new}")


def _check(report: DeletionReport) -> None:
    if not report.verified:
        base.tell("Other programs wrote at the same time: end them, and call this again.")
        raise typer.Exit(1)


def delete_messages(
    memory: Memory,
    *,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="ISO 8601, such as 2026-01-01 or 2026-01-01T18:00+01:00."),
    ] = None,
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Instead of --until: 90d, 12w or 36h.")] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", "--resource", metavar="ID", help="Only of this user.", autocompletion=resource_ids),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Of all users.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and delete nothing.")] = False,
    yes: Yes = False,
) -> Output:
    """Delete the messages that were stored until a time, after asking; the threads stay. Exit code 3: declined.

    Examples:
        workingmem delete-messages --older-than 90d --all --dry-run
        workingmem delete-messages --until 2026-01-01 --user maya

    Safe to run again: an interrupted run continues. Lines of logs, kept values and titles that come from the messages go with them;
    checkpoints of LangGraph stay.
    """
    if (until is None) == (older_than is None) or (user is None) == (not everyone):
        base.misused("pass --until or --older-than, and --user or --all")
    from tqdm.auto import tqdm

    state = memory._core.state
    zone = state.zone(None, None)
    time = _time(until, older_than, zone)
    threads = {one.id: one.resource_id for one in memory._core.run(all_threads(state, user))}
    if dry_run or not yes:
        pages = ((id, memory.history.page(id, limit=1, until=time)) for id in threads)
        counts = {id: page.total for id, page in pages if page.total}
        told = f"{counted(sum(counts.values()), 'message')} of {counted(len(counts), 'thread')} were stored until {time.astimezone(zone or UTC):%Y-%m-%d %H:%M %Z}"
        if dry_run:
            report = {"until": time.isoformat(), "threads": len(counts), "messages": sum(counts.values())}
            yield {**report, "deleted": False}, told
            return
        base.confirm(f"{told}. Delete them permanently?")
    threads_done = messages = 0
    for id, owner in tqdm(threads.items(), desc="delete-messages", unit=" threads", disable=not sys.stderr.isatty()):
        with suppress(ThreadOwnershipError):  # it has another owner by now
            count = memory.history.delete(thread_id=id, resource_id=owner, until=time)
            threads_done, messages = threads_done + bool(count), messages + count
    report = {"until": time.isoformat(), "threads": threads_done, "messages": messages, "deleted": True}
    yield report, f"deleted: {counted(messages, 'message')} of {counted(threads_done, 'thread')}"


def _time(until: str | None, older_than: str | None, zone: ZoneInfo | None) -> datetime:
    if older_than is not None:
        age = re.fullmatch(r"(\d{1,5})([hdw])", older_than)
        if age is None:
            base.misused(f"--older-than {older_than}: pass 90d, 12w or 36h")
        return datetime.now(UTC) - int(age[1]) * timedelta(hours={"h": 1, "d": 24, "w": 168}[age[2]])
    try:
        time = datetime.fromisoformat(until or "")
    except ValueError:
        base.misused(f"--until {until}: pass a time in ISO 8601, such as 2026-01-01")
    return (aware(time, zone, last=True) or time).astimezone(UTC)


def _is_stored(memory: Memory, resource: str, namespaces: list[tuple[str, ...]]) -> bool:
    """Tell whether anything is stored; also True if that cannot be listed."""
    with suppress(OptionError, RedisCapabilityError):
        return len([*islice(memory.users.export(resource, namespaces=namespaces), 2)]) > 1
    return True


def _summary(memory: Memory, resource: str) -> str:
    try:
        threads = memory._core.run(all_threads(memory._core.state, resource))
    except (OptionError, RedisCapabilityError) as error:
        return f"The data of resource {resource!r} cannot be listed ({base.worded(error)})"
    messages = sum(thread.message_count for thread in threads)
    state = memory.working_memory.get(resource_id=resource)
    kept = f"working memory at revision {state.revision}" if state.revision else "no working memory"
    files = memory.files.usage(resource_id=resource).files
    kept = f"{kept}, and {counted(files, 'file')}" if files else kept
    return (
        f"Resource {resource!r} has {counted(len(threads), 'thread')} with {counted(messages, 'message')}, and {kept}"
    )


def as_namespaces(given: list[str] | None) -> list[tuple[str, ...]]:
    """Split templates of namespaces at their dots, and check them."""
    found = [tuple(template.split(".")) for template in given or ()]
    with base.checking():
        sections.paths_of(found, "any")
    return found


def _reported(report: R) -> tuple[R, str]:
    counts = asdict(report).items()
    parts = [_counted(name.replace("_", " "), count) for name, count in counts if type(count) is int and count]
    return report, f"{_DONE[type(report)]}: {', '.join(parts) or 'nothing'}"


def _counted(names: str, count: int) -> str:
    """Write a number with what it counts."""
    one = f"{names[:-3]}y" if names.endswith("ies") else names.removesuffix("s")
    return f"{count:,} {one if count == 1 else names}"
