"""`observe` writes the logs that stand for older messages; `observations` reads and corrects them; `keep` keeps working memory."""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import typer

from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.cli.base import (
    MaybeThread,
    Output,
    Owner,
    Program,
    ResourceId,
    Target,
    Yes,
    confirm,
    existing,
    misused,
    tell,
)
from langchain_workingmem.display.pictures import clock, counted
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import (
    ModelError,
    OptionError,
    ResourceDeletedError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.observations import observe_now, pending_tokens
from langchain_workingmem.options import ObservationOptions, Scope
from langchain_workingmem.threads import all_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Thread

GONE = (ThreadNotFoundError, ThreadOwnershipError, ResourceDeletedError)  # since the threads were listed
IN_A_ROW = 3  # threads at which the model fails before the command gives up
LONG = 30_000  # tokens of a turn from which on its steps are observed while it goes on, as in ObservationOptions

Due: TypeAlias = "tuple[Thread, int, bool]"
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of an observation; `list` shows it.")]


@dataclass(frozen=True, kw_only=True)
class Those:
    """Which threads a model reads."""

    thread: MaybeThread = None
    resource: ResourceId = None
    everything: Annotated[bool, typer.Option("--all", help="All threads of all resources.")] = False

    def check(self) -> None:
        """End the program unless they are named in one way."""
        if [self.thread is not None, self.resource is not None, self.everything].count(True) != 1:
            misused("pass a thread, --resource for all threads of a resource, or --all: one of them")

    def of(self, memory: Memory) -> Sequence[Thread]:
        """Return the threads, the oldest first."""
        if self.thread is not None:
            return [existing(memory, self.thread, None)]
        found = memory._core.run(all_threads(memory._core.state, self.resource))
        return sorted(found, key=lambda one: one.updated_at)


@dataclass(frozen=True, kw_only=True)
class Observer:
    """The options of observations, which those of a program replace."""

    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="Any model of LangChain's init_chat_model.")
    ] = None
    reflector: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="Another model to condense logs that are too long.")
    ] = None
    scope: Annotated[Scope | None, typer.Option(help="A log for each thread (default), or one for each resource.")] = (
        None
    )
    keep_tokens: Annotated[
        int | None, typer.Option(min=0, help="The newest tokens, which stay as they are. Default: 6000.")
    ] = None
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens for one call of the model, at most. Default: 10000.")
    ] = None
    observation_tokens: Annotated[
        int | None, typer.Option(min=1, help="Condense a log with more tokens. Default: 40000.")
    ] = None
    instructions: Annotated[str | None, typer.Option(help="What matters in your domain, for the prompts.")] = None
    timeout: Annotated[float | None, typer.Option(min=1, help="Seconds for one call of the model. Default: 120.")] = (
        None
    )

    def given(self) -> dict[str, Any]:
        """Return those that were given, as `ObservationOptions` takes them."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        return found if self.timeout is None else {**found, "timeout": timedelta(seconds=self.timeout)}


def observe(
    *,
    those: Those,
    observer: Observer,
    program: Program = None,
    message_tokens: Annotated[
        int, typer.Option(min=0, help="Leave out threads with fewer tokens that are not observed yet.")
    ] = 0,
    target: Target,
) -> Output:
    """Let a model write observations: short notes that stand for older messages in prompts.

    Examples:
        workingmem observe trip --model openai:gpt-4o-mini
        workingmem observe --all --memory my_program:memory

    Pass a thread, --resource or --all. It is safe to run this at any time, at once with the program or with itself, and again:
    what is observed is never observed twice. Exit code 1 if the model failed; its messages then stay as they are.
    """
    those.check()
    given = observer.given()
    if (program is None) == (observer.model is None) or (program is not None and given):
        misused("pass --model with its options, or --memory, which brings its own: one of them")
    logger, silent = logging.getLogger("langchain_workingmem"), logging.NullHandler()
    logger.addHandler(silent)  # one line at the end names what failed
    try:
        with _opened(target, program, given) as memory:
            options = memory._core.state.observations
            if options is None:
                remedy = "pass observations= to it, or --model here"
                raise OptionError("observations are off in this memory", remedy=remedy)
            threads = those.of(memory)
            due = _due(memory, threads, options, message_tokens)
            done: dict[str, int] = {}
            failures = _failures(_observe(memory, due, done))
            observed = len(done)
            if those.thread is not None:
                yield memory.observations.get(thread_id=those.thread)
    finally:
        logger.removeHandler(silent)
    if those.thread is None:
        count = {"threads": len(threads), "observed": observed, "failed": len(failures)}
        yield count, f"observed: {observed:,} of {counted(len(threads), 'thread')}"
    _raise_first(failures, "the messages stay as they are", "check --model and its key, and run this again")


def _raise_first(failures: Sequence[tuple[str, str]], rest: str, remedy: str) -> None:
    """Raise what the model has answered about the first thread where it failed, if there is one; `rest` says what is left."""
    if failures:
        id, error = failures[0]
        more = f" and {len(failures) - 1:,} more" if len(failures) > 1 else ""
        why = shorten(" ".join(error.split()), 400)
        raise ModelError(f"the model gave no usable answer for thread {id!r}{more} ({why}); {rest}", remedy=remedy)


def _opened(target: Target, program: str | None, given: dict[str, Any]) -> AbstractContextManager[Memory]:
    """Open the memory of a program with its options, or one with those that were given."""
    if program is not None:
        return target.of_program(program, "none")
    message_tokens = max(LONG, given.get("keep_tokens", 0) + 1)
    return target.opened(observations=ObservationOptions(**given, message_tokens=message_tokens, background=False))


def _due(memory: Memory, threads: Sequence[Thread], options: ObservationOptions, least: int) -> list[Due]:
    """Choose the threads that have something to observe, the oldest first: with its tokens, and whether it is the newest of its log.

    One round trip for each thread.
    """
    logs: dict[str, list[tuple[Thread, int]]] = defaultdict(list)
    for thread in threads:
        with suppress(*GONE):
            tokens = memory._core.run(pending_tokens(memory._core.state, thread.id, thread.resource_id))
            logs[thread.id if options.scope == "thread" else thread.resource_id].append((thread, tokens))
    due: list[Due] = []
    for those in logs.values():
        if sum(tokens for _, tokens in those) >= least:
            *older, (newest, tokens) = those
            due += [(thread, more, False) for thread, more in older]
            due.append((newest, tokens - options.keep_tokens, True))
    return [one for one in due if one[1] > 0]


def _failures(answers: Iterable[tuple[str, str | None]]) -> list[tuple[str, str]]:
    """Return the threads at which the model failed, with its errors. After `IN_A_ROW` of them it is not asked about the others."""
    failures: list[tuple[str, str]] = []
    in_a_row = 0
    for id, error in answers:
        in_a_row = 0 if error is None else in_a_row + 1
        if error is not None:
            failures.append((id, error))
        if in_a_row == IN_A_ROW:
            break
    return failures


def _observe(memory: Memory, due: Sequence[Due], done: dict[str, int]) -> Iterator[tuple[str, str | None]]:
    """Observe threads: yield the id of each, with the error of the model if it failed; `done` gets the tokens that were observed."""
    from tqdm.auto import tqdm

    with tqdm(
        total=sum(tokens for _, tokens, _ in due), desc="observe", unit=" tokens", disable=not sys.stderr.isatty()
    ) as bar:
        for thread, tokens, is_newest in due:

            def advance(now: int, _: int, id: str = thread.id) -> None:
                done[id] = now
                bar.update(sum(done.values()) - bar.n)

            plan = observe_now(memory._core.state, thread.id, thread.resource_id, is_newest=is_newest, total=tokens)
            with suppress(*GONE):
                log, failed = memory._core.run(plan, advance)
                yield thread.id, (log.usage.last_error or "no answer") if failed else None


# ---------------------------------------------------------------------- keep


def keep(
    *,
    those: Those,
    program: Annotated[str, *get_args(Program)[1:]],
    target: Target,
) -> Output:
    """Let the keeper, a model, read new messages and write the facts in them into working memory.

    Examples:
        workingmem keep --resource maya --memory my_program:memory

    Schema, template, model and Redis are those of the program's Memory. Pass a thread, --resource or --all. It is safe to run
    this at any time, at once with the program or with itself, and again. Exit code 1 if the model failed; its messages then wait.
    """
    those.check()
    with target.of_program(program, "none") as memory:
        threads = those.of(memory)
        changed: list[str] = []
        failures = _failures(_keep(memory, threads, changed))
    count = {"threads": len(threads), "changed": len(changed), "failed": len(failures)}
    yield count, f"read: {counted(len(threads), 'thread')}, {len(changed):,} of them changed working memory"
    _raise_first(failures, "the messages wait", "check the model of the program and its key, and run this again")


def _keep(memory: Memory, threads: Sequence[Thread], changed: list[str]) -> Iterator[tuple[str, str | None]]:
    """Read threads: yield the id of each, with the error of the model if it failed; `changed` gets those that changed a document."""
    from tqdm.auto import tqdm

    for thread in tqdm(threads, desc="keep", unit=" threads", disable=not sys.stderr.isatty()):
        with suppress(*GONE):
            before = memory.working_memory.get(thread_id=thread.id, resource_id=thread.resource_id).revision
            report = memory.working_memory.keep(thread.id, resource_id=thread.resource_id)
            if report.memory.revision > before:
                changed.append(thread.id)
            yield thread.id, (report.last_error or "no answer") if report.has_failed else None


# ---------------------------------------------------------------------- observations


def list_(
    memory: Memory,
    owner: Owner,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="As a model reads them, all of them.")] = False,
) -> Output:
    """List the observations of a thread or of a resource, how much is not observed yet, and their cost."""
    log = memory.observations.get(**vars(owner))
    if raw:
        typer.echo(clean(log.as_text(clock())))
    else:
        yield log
    if not log.revision:
        other = "--resource" if owner.resource_id is None else "--thread"
        tell(f"Nothing was observed here. A program with the other scope keeps its log elsewhere: pass {other}.")


def sources(
    memory: Memory,
    owner: Owner,
    id: Id,
    *,
    message_range: Annotated[int, typer.Option(min=0, help="Messages before and after each source.")] = 1,
) -> Output:
    """Show the messages that an observation comes from."""
    yield memory.observations.sources(id, message_range=message_range, **vars(owner))


def delete(memory: Memory, owner: Owner, id: Id, *, yes: Yes = False) -> Output:
    """Delete an observation, after asking.

    Its messages stay stored, and are not observed again.
    """
    found = next((one.text for one in memory.observations.get(**vars(owner)) if one.id == id), "")
    if found and not yes:
        confirm(f"Delete observation {id}, {shorten(found)!r}?")
    yield memory.observations.delete(id, **vars(owner))


def clear(memory: Memory, owner: Owner, *, yes: Yes = False) -> Output:
    """Delete all observations, after asking.

    Models see the messages themselves again, until they are observed anew.
    """
    if not yes:
        count = len(memory.observations.get(**vars(owner)))
        confirm(
            f"Delete {'the only observation' if count == 1 else f'all {count:,} observations'}? A model has to observe the messages anew."
        )
    yield memory.observations.clear(**vars(owner))


COMMANDS = (list_, sources, delete, clear)
