"""What every command needs: options, a memory to work on, and errors that end in one line and an exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from platformdirs import user_data_path

from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.memory import Memory
from langchain_workingmem.options import IndexOptions, RecallOptions
from langchain_workingmem.plans.effects import Plan, send
from langchain_workingmem.plans.keys import Keys
from langchain_workingmem.plans.space import no_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.plans.space import Space

DECLINED = 3

Url = Annotated[
    str | None,
    typer.Option(envvar="REDIS_URL", help="redis://, rediss://, unix:// or redis+sentinel://", metavar="URL"),
]
Dir = Annotated[
    Path | None,
    typer.Option("--dir", help="In place of a URL: a private Redis that keeps its data here.", metavar="DIRECTORY"),
]
Prefix = Annotated[str, typer.Option(help="In front of every key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ResourceId = Annotated[str | None, typer.Option("--resource", help="Whose: the id of a resource, usually a user.")]
ThreadId = Annotated[str | None, typer.Option("--thread", help="The id of a thread.")]
Limit = Annotated[int, typer.Option(min=1, help="How many on a page.")]
Cursor = Annotated[str | None, typer.Option(help="Where the page begins: the end of the page before says it.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="A larger document is refused.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Model = Annotated[
    str,
    typer.Option(
        "--embeddings", help="Embedding model: local, openai:NAME, or another provider:NAME.", metavar="PROVIDER:NAME"
    ),
]


@contextmanager
def failing() -> Iterator[None]:
    """Turn our errors into one line and exit code 1."""
    try:
        yield
    except WorkingMemError as error:
        complain(worded(". ".join([str(error), *getattr(error, "__notes__", ())])))
        raise typer.Exit(1) from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever reads has enough
            raise
        sys.stdout = StringIO()  # nothing more can be written, not even at the end
        complain(f"standard output cannot be written: {error.strerror}")
        raise typer.Exit(1) from None


def worded(message: str) -> str:
    """Name commands where an error or a finding names the Python that helps."""
    made = ": run `workingmem reindex` once, or memory.setup() in your program if it does not recall"
    message = message.replace(str(no_index("")), made)
    message = message.replace("import with WorkingMemoryOptions(max_bytes=...)", "pass --max-bytes")
    message = message.replace("namespaces=[('memories', '{user_id}')]", "--namespace 'memories.{user_id}'")
    return re.sub(r"memory\.recall\.reindex\([^)]*\)", "`workingmem reindex`", message)


def complain(message: str) -> None:
    """Say on standard error what went wrong."""
    typer.echo(f"workingmem: {clean(message)}", err=True)


def misused(message: str) -> NoReturn:
    """End the program, because it was wrongly called."""
    complain(message)
    raise typer.Exit(2)


def tell(message: str) -> None:
    """Say on standard error what a person may want to know; standard output is for what was asked."""
    typer.echo(clean(message), err=True)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask; without a terminal, and without `--yes`, it is a mistake to call this. Ends the program unless agreed."""
    if yes:
        return
    if not sys.stdin.isatty():
        misused(f"{question} There is no terminal to answer at: pass --yes")
    if not typer.confirm(clean(question), err=True):
        tell("Nothing was changed.")
        raise typer.Exit(DECLINED)


# ---------------------------------------------------------------------- memories


def home() -> Path:
    """Name the directory of the memory that is meant where nothing else is said."""
    return user_data_path("langchain-workingmem", appauthor=False)


def directory_of(url: str | None, directory: Path | None, *, make: bool) -> Path | None:
    """Choose the directory of the private Redis, None where a URL is meant; only `make` lets a new one begin."""
    if directory is None:
        if url is not None:
            return None
        directory = home()
    elif url not in (None, os.environ.get("REDIS_URL")):
        misused("--url and --dir: pass one of them, a memory is in one place")
    directory = directory.expanduser()
    if not make and not directory.is_dir():
        msg = f"there is no memory in {directory}: pass --url or --dir, set REDIS_URL, or begin with `workingmem chat`"
        raise OptionError(msg)
    return directory


@contextmanager
def opened(
    url: str | None, directory: Path | None, prefix: str, *, make: bool = False, **options: Any
) -> Iterator[Memory]:
    """Open the memory that the options name, and close it; only `make` lets indexes and directories come into being."""
    Keys(prefix)  # a wrong one shall make no directory
    path = directory_of(url, directory, make=make)
    common = {"key_prefix": prefix, "create_index": make, **options}
    memory = Memory(url, **common) if path is None else Memory.embedded(path, **common)
    try:
        yield memory
    finally:
        memory.close()


@contextmanager
def recalling(
    url: str | None,
    directory: Path | None,
    prefix: str,
    embeddings: str,
    *,
    make: bool = False,
    other_model: bool = False,
    chosen: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Memory]:
    """Open a memory with recall, on the index as it was built. Vectors of another model are refused, unless allowed.

    The model "none" leaves recall off.
    """
    if embeddings == "none":
        with opened(url, directory, prefix, make=make, **options) as memory:
            yield memory
        return
    with opened(url, directory, prefix, make=make) as plain:
        stored = plain.core.run(stored_settings(plain.core.space))
        recall = RecallOptions(index=_index(stored), **(chosen or {}))
        with opened(url, directory, prefix, make=make, embeddings=embeddings, recall=recall, **options) as memory:
            mine = memory.core.space.model
            if stored and stored["model"] != mine and not other_model:
                msg = (
                    f"the vectors here were made by {stored['model']!r}, and --embeddings {embeddings} is {mine!r}: name "
                    "that model, or change all vectors with `workingmem reindex`"
                )
                raise OptionError(msg)
            yield memory


def stored_settings(space: Space) -> Plan[dict[str, Any]]:
    """Read what the vector index was built for, nothing when there is none. One round trip."""
    (stored,) = yield from send(("GET", space.keys.vectors_settings))
    found: dict[str, Any] = json.loads(stored) if stored else {}
    return found


def _index(stored: dict[str, Any]) -> IndexOptions:
    names = {"algorithm": "algorithm", "distance_metric": "distance", "datatype": "dtype"}
    names |= {name: name for name in ("m", "ef_construction", "ef_runtime")}
    return IndexOptions(**{name: stored[theirs] for theirs, name in names.items() if theirs in stored})
