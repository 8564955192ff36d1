"""`observe` writes the logs that stand for older messages; `observations` reads and corrects them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem.cli.base import (
    Form,
    Program,
    Target,
    ThreadId,
    UserId,
    Yes,
    complain,
    confirm,
    existing,
    misused,
    owner,
)
from langchain_workingmem.cli.streams import printed
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import ObservationOptions, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator


Id = Annotated[str, typer.Argument(help="The id of an observation; `list` shows it.")]


def observe(
    thread: Annotated[str | None, typer.Argument(help="The id of a thread.")] = None,
    *,
    user: UserId = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads of all users.")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="PROVIDER:MODEL", help="Any model of LangChain's init_chat_model.")
    ] = None,
    scope: Annotated[Scope, typer.Option(help="A log for each thread, or one for each user.")] = "thread",
    program: Program = None,
    form: Form = "table",
    target: Target,
) -> None:
    """Let a model write observations: short notes that stand for older messages in prompts.

    Pass a thread, --user or --all; and --model, or --memory with all options of your program. It is safe to run this at
    any time, and again: what is observed is never observed twice. Exit code 1 if the model failed.
    """
    if [thread is not None, user is not None, everything].count(True) != 1:
        misused("pass a thread, --user for all threads of a user, or --all: one of them")
    if (program is None) == (model is None):
        misused("pass --model, or --memory, which brings its own: one of them")
    options = ObservationOptions(model=model, scope=scope, background=False) if model else None
    opened = target.of_program(program, "none") if options is None else target.opened(observations=options)
    with opened as memory:
        if thread is not None:
            existing(memory, thread, None)
            threads = [thread]
        else:
            from langchain_workingmem.threads import all_threads

            threads = [one.id for one in memory._core.run(all_threads(memory._core.state, user))]
        failed: dict[str, str | None] = {}
        for id in threads:
            before = memory.observations.get(thread_id=id).usage.failures
            usage = memory.observations.observe(id).usage
            if usage.failures > before:
                failed[id] = usage.last_error
    told = f"observed: {counted(len(threads), 'thread')}, the model failed at {len(failed):,}"
    printed(form, {"threads": len(threads), "failed": failed}, told)
    if failed:
        complain(f"the model failed, the messages stay as they are: {next(iter(failed.values()))}")
        raise typer.Exit(1)


# ---------------------------------------------------------------------- observations


@contextmanager
def _opened(target: Target, user: str | None, thread: str | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    ids = owner(user, thread)
    with target.opened() as memory:
        existing(memory, thread, user)
        yield memory.observations, ids


def list_(*, user: UserId = None, thread: ThreadId = None, form: Form = "table", target: Target) -> None:
    """List the observations of a thread or of a user, how much is not observed yet, and their cost."""
    with _opened(target, user, thread) as (observations, ids):
        printed(form, observations.get(**ids))


def sources(id: Id, *, user: UserId = None, thread: ThreadId = None, form: Form = "table", target: Target) -> None:
    """Show the messages that an observation comes from."""
    with _opened(target, user, thread) as (observations, ids):
        printed(form, observations.sources(id, **ids))


def delete(
    id: Id,
    *,
    user: UserId = None,
    thread: ThreadId = None,
    yes: Yes = False,
    form: Form = "table",
    target: Target,
) -> None:
    """Delete an observation, after asking. Its messages stay stored, and are not observed again."""
    with _opened(target, user, thread) as (observations, ids):
        found = next((one.text for one in observations.get(**ids) if one.id == id), None)
        if found is None:
            raise OptionError(f"no observation {id!r}", remedy="`workingmem observations list` lists the ids")
        if not yes:
            confirm(f"Delete observation {id}, {found[:200]!r}?")
        printed(form, observations.delete(id, **ids))


def clear(
    *, user: UserId = None, thread: ThreadId = None, yes: Yes = False, form: Form = "table", target: Target
) -> None:
    """Delete all observations, after asking. Models see the messages themselves again, until they are observed anew."""
    with _opened(target, user, thread) as (observations, ids):
        if not yes:
            confirm(f"Delete {counted(len(observations.get(**ids)), 'observation')}?")
        printed(form, observations.clear(**ids))


COMMANDS = {"list": list_, "sources": sources, "delete": delete, "clear": clear}
