"""The command line, `workingmem`: needs the extra `cli`.

A command takes `Url`, `Prefix` and `AsJson` as they stand here, opens its memory with `opened`, and shows what it found
with `show`. What goes wrong on purpose ends in one line on standard error and exit code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator  # noqa: TC003 - typer reads annotations
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.memory import Memory
from langchain_workingmem.plans.acl import CLUSTER, set_user
from langchain_workingmem.plans.keys import Keys

if TYPE_CHECKING:
    from langchain_workingmem.models import Diagnosis, Level

try:
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError as error:
    sys.exit(f"workingmem needs its extra: pip install 'langchain-workingmem[cli]' ({error})")

# no tracebacks with locals: they would show the password
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Memory for LangChain agents on Redis.")

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="REDIS_URL", help="redis://, rediss://, unix:// or redis+sentinel://", metavar="URL"),
]
Prefix = Annotated[str, typer.Option("--key-prefix", help="In front of every key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Acl = Annotated[bool, typer.Option("--acl", help="Print the rights that a Redis user needs, and look at nothing.")]

_COLOURS: dict[Level, str] = {"ok": "green", "unknown": "cyan", "warning": "yellow", "error": "red"}


@app.callback()
def _commands() -> None:
    """Keep `doctor` a command of its own: typer makes a lone command the program."""


@contextmanager
def failing() -> Iterator[None]:
    """Turn our errors into one line and exit code 1."""
    try:
        yield
    except WorkingMemError as error:
        typer.echo(f"workingmem: {error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def opened(url: str | None, prefix: str, **options: Any) -> Iterator[Memory]:
    """Open the memory that the options name, and close it; indexes are not created."""
    with failing():
        memory = Memory(url, key_prefix=prefix, create_index=False, **options)
        try:
            yield memory
        finally:
            memory.close()


def show(found: Any, render: Callable[[Any], Any], *, as_json: bool) -> None:
    """Print a record: as JSON, or as `render` makes it something that rich can print."""
    if as_json:
        typer.echo(json.dumps(asdict(found), default=str, ensure_ascii=False, indent=2))
    else:
        Console().print(render(found))


@app.command()
def doctor(*, url: Url = None, key_prefix: Prefix = "wm", as_json: AsJson = False, acl: Acl = False) -> None:
    """Look at the server, the indexes and the vectors; exit code 1 when something is broken. Changes nothing."""
    if acl:
        with failing():
            typer.echo(_users(Keys(key_prefix)))
        return
    with opened(url, key_prefix) as memory:
        found = memory.doctor()
    show(found, _table, as_json=as_json)
    raise typer.Exit(found.level == "error")


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, show_header=False)
    for finding in diagnosis:
        colour = _COLOURS[finding.level]
        advice = f"\n[dim]{escape(finding.remedy)}[/dim]" if finding.remedy else ""
        table.add_row(f"[{colour}]{finding.level}[/{colour}]", finding.check, f"{escape(finding.message)}{advice}")
    return table


def _users(keys: Keys) -> str:
    return "\n".join(
        (
            '# Paste into redis-cli, with the password\'s hash in its place: printf %s "$PASSWORD" | sha256sum',
            f"# On every node of a Redis Cluster, with {' '.join(CLUSTER)} at the end.",
            "",
            "# Makes the indexes and rebuilds them: for Memory(...).setup() and recall.reindex() when you deploy.",
            set_user("workingmem-admin", keys),
            "",
            "# Runs the application, as Memory(..., create_index=False).",
            set_user("workingmem", keys, create_index=False),
        )
    )


if __name__ == "__main__":
    app()
