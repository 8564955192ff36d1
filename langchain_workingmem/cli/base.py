"""What every command needs: options, a memory to work on, and errors that end in one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from io import StringIO
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer

from langchain_workingmem.cli.help import resource_ids, thread_ids
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import PYTHON, OptionError, Remedy, WorkingMemError

if TYPE_CHECKING:
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Thread
    from langchain_workingmem.options import IndexOptions

DECLINED = 3

WORDS = {  # what remedies name
    **PYTHON,
    "allow_partial": "--allow-partial",
    "list": "`workingmem observations list`",
    "delete": "run `workingmem observations delete`",
    "file_directory": "`workingmem files ls`",
    "file_history": "`workingmem files history`",
    "file_replace": "leave out --new",
    "files": "`workingmem files ls` and `find`",
    "history": "`workingmem observations history`",
    "index": "if messages are stored with this key prefix, run `workingmem reindex` once, or memory.setup() in a program without recall",
    "max_file_bytes": "split it, or pass --max-bytes",
    "messages": "`workingmem show`",
    "import_bytes": "pass --max-bytes",
    "namespaces": "--namespace 'memories.{user_id}'",
    "or_max_bytes": ", or pass --max-bytes",
    "reindex": "`workingmem reindex`",
    "resource": "--scope resource",
    "revisions": "`workingmem working-memory history`",
    "thread": "--scope thread",
}

_which: Any = partial(typer.Option, rich_help_panel="Which memory")  # an option in that section of the help
_URLS = "A Redis: redis://, rediss://, unix:// or redis+sentinel://. Default: REDIS_URL of the environment."
_ZONE = "The time zone of all times, such as Asia/Tokyo. Default: that of this machine."
_DIR = "Instead of a URL: a private Redis with its data here. Default: that of `workingmem chat`."
_MODELS = "Embedding model: local, minilm, openai:NAME or another provider:NAME"

Output: TypeAlias = Iterator[Any]  # records, texts, or pairs of what programs and what people read
ResourceId = Annotated[
    str | None,
    typer.Option("--resource", metavar="ID", help="The id of a resource, usually a user.", autocompletion=resource_ids),
]
ThreadId = Annotated[str | None, typer.Option("--thread", metavar="ID", help="A thread.", autocompletion=thread_ids)]
Resource = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="The id of a resource, usually a user.", autocompletion=resource_ids)
]
AThread = Annotated[str, typer.Argument(metavar="THREAD", help="The id of a thread.", autocompletion=thread_ids)]
MaybeThread = Annotated[
    str | None, typer.Argument(metavar="THREAD", help="The id of a thread.", autocompletion=thread_ids)
]
Limit = Annotated[int, typer.Option(min=1, help="The number of entries on a page.")]
Cursor = Annotated[str | None, typer.Option(help="The start of the page, as printed below the previous page.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Refuse a larger working memory.")]
Newest = Annotated[int, typer.Option("--limit", min=1, help="The number of revisions.")]
Restored = Annotated[int, typer.Argument(metavar="REVISION", min=1, help="The revision to restore.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Program = Annotated[
    str | None,
    typer.Option("--memory", metavar="MODULE:NAME", help="Your program's Memory, or a function that returns one."),
]
Model = Annotated[str, typer.Option("--embeddings", help=f"{_MODELS}.", metavar="PROVIDER:NAME")]
MaybeModel = Annotated[
    str, typer.Option("--embeddings", help=f"{_MODELS}; or none: no vectors.", metavar="PROVIDER:NAME")
]


_WrongCall: Any = typer.BadParameter.__base__  # of click, or of the copy that typer brings


@contextmanager
def failing() -> Iterator[None]:
    """Turn our errors into one line and exit code 1, a wrong call into one line and exit code 2."""
    try:
        yield
    except _WrongCall as error:
        path = error.ctx.command_path if error.ctx else "workingmem"
        message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
        misused(f"{message}{'' if message.endswith('?') else '.'} `{path} --help` shows what can be passed")
    except WorkingMemError as error:
        complain(worded(error))
        raise typer.Exit(1) from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever reads has enough
            raise
        sys.stdout = StringIO()  # nothing more can be written, not even at the end
        complain(f"standard output cannot be written: {error.strerror}")
        raise typer.Exit(1) from None


def worded(said: object) -> str:
    """Write an error, a remedy or a note, with commands in place of the Python that helps."""
    if isinstance(said, Remedy):
        return said.worded(WORDS)
    text = said.worded(WORDS) if isinstance(said, WorkingMemError) else str(said)
    return ". ".join([text, *map(worded, getattr(said, "__notes__", ()))])


def complain(message: str) -> None:
    """Print an error to standard error."""
    typer.echo(f"workingmem: {clean(message)}", err=True)


def misused(message: str) -> NoReturn:
    """End the program with the exit code for a wrong call."""
    complain(message)
    raise typer.Exit(2)


def tell(message: str) -> None:
    """Print a hint to standard error; standard output holds the result only."""
    typer.echo(clean(message), err=True)


@contextmanager
def checking() -> Iterator[None]:
    """Take an error about an option for a wrong call: it is raised before anything is done."""
    try:
        yield
    except OptionError as error:
        misused(worded(error))


def confirm(question: str) -> None:
    """Ask, and end the program unless the user agrees. Without a terminal, `--yes` is required."""
    if not sys.stdin.isatty():
        misused(f"{question} There is no terminal to answer at: pass --yes")
    if not typer.confirm(clean(question), err=True):
        tell("Nothing was changed.")
        raise typer.Exit(DECLINED)


def zone_here() -> str:
    """Name the time zone of this machine; "UTC" where its name is unknown."""
    name = os.environ.get("TZ", "").lstrip(":") or os.path.realpath("/etc/localtime").rpartition("/zoneinfo/")[2]
    name = name.removeprefix("posix/")
    if name.removeprefix("Etc/") not in {"UTC", "UCT", "Universal", "Zulu"}:
        from langchain_workingmem.checks import check_zone

        with suppress(OptionError):
            check_zone(name, "TZ")
            return name
    return "UTC"


# ---------------------------------------------------------------------- memories


def home() -> Path:
    """Name the directory of the memory that is meant where nothing else is said."""
    from platformdirs import user_data_path

    return user_data_path("langchain-workingmem", appauthor=False)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The memory that a command works on."""

    url: Annotated[str | None, _which(envvar="REDIS_URL", help=_URLS, metavar="URL")] = None
    directory: Annotated[Path | None, _which("--dir", help=_DIR, metavar="DIRECTORY")] = None
    key_prefix: Annotated[str, _which(help="The prefix of all keys.", metavar="PREFIX")] = "wm"
    timezone: Annotated[str | None, _which(help=_ZONE, metavar="ZONE")] = None

    @property
    def zone(self) -> str:
        """Return the name of the zone of whoever sits at this terminal."""
        return self.timezone or zone_here()

    def path(self, *, make: bool) -> Path | None:
        """Return the directory of the private Redis, None for a URL. Without `make`, the directory must exist."""
        if self.directory is None and self.url is not None:
            return None
        if self.directory is not None and self.url not in (None, os.environ.get("REDIS_URL")):
            misused("--url and --dir: pass one of them")
        path = (self.directory or home()).expanduser()
        if not make and not path.is_dir():
            remedy = "pass --url or --dir, set REDIS_URL, or begin with `workingmem chat`"
            raise OptionError(f"there is no memory in {path}", remedy=remedy)
        return path

    def opened(self, *, make: bool = False, **options: Any) -> AbstractContextManager[Memory]:
        """Open the memory, and close it. Only `make` creates indexes and directories."""
        from langchain_workingmem._redis.keys import Keys
        from langchain_workingmem.memory import Memory

        with checking():
            Keys(self.key_prefix)  # before a directory is made
        path = self.path(make=make)
        common = {"key_prefix": self.key_prefix, "create_index": make, "timezone": self.zone, **options}
        if path is not None:
            return closing(Memory.embedded(path, **common))
        with checking():  # nothing is sent yet
            return closing(Memory(self.url, **common))

    @contextmanager
    def opened_for(self, owner: Owner, **options: Any) -> Iterator[Memory]:
        """Open the memory for the data of an owner. A thread must exist."""
        owner.scope()
        with self.opened(**options) as memory:
            if owner.thread_id is not None:
                existing(memory, owner.thread_id, owner.resource_id)
            yield memory

    def of_program(
        self, program: str | None, embeddings: str, *, make: bool = False, **options: Any
    ) -> AbstractContextManager[Memory]:
        """Open the memory that a program has made, with its options; without `program` this one, with recall.

        The times that a model is shown are those of the program, unless `--timezone` names a zone.
        """
        if program is None:
            return self.recalling(embeddings, make=make, **options)
        if self.directory is not None or self.url not in (None, os.environ.get("REDIS_URL")):
            misused("--memory says where the memory is: leave out --url and --dir")
        memory = _imported(program)
        memory._core.state.timezone = self.timezone or memory._core.state.timezone
        if not make:
            memory._core.state.indexes.create = False  # whatever its options say: who looks changes nothing
        return closing(memory)

    @contextmanager
    def recalling(
        self,
        embeddings: str,
        *,
        make: bool = False,
        other_model: bool = False,
        chosen: dict[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Memory]:
        """Open the memory with recall, on the index as it was built. The model "none" leaves recall off.

        Vectors of another model are refused, unless `other_model` allows them. `chosen` are arguments of RecallOptions.
        """
        if embeddings == "none":
            with self.opened(make=make, **options) as memory:
                yield memory
            return
        from langchain_workingmem.options import RecallOptions

        with self.opened(make=make) as plain:
            stored = stored_settings(plain)
            recall = RecallOptions(index=_index(stored), **(chosen or {}))
            with self.opened(make=make, embeddings=embeddings, recall=recall, **options) as memory:
                model = memory._core.state.indexes.model
                if stored.get("model", model) != model and not other_model:
                    raise OptionError(
                        f"the vectors here were made by {stored['model']!r}, and --embeddings {embeddings} is {model!r}",
                        remedy="pass that model, or change all vectors with `workingmem reindex`",
                    )
                yield memory


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose data: of the thread if there is one, else of the resource."""

    resource_id: ResourceId = None
    thread_id: ThreadId = None

    def scope(self) -> Literal["resource", "thread"]:
        """Return the scope. One of the ids is required."""
        if self.resource_id is None and self.thread_id is None:
            misused("pass --resource, for the data of a resource, or --thread, for the data of one thread")
        return "resource" if self.thread_id is None else "thread"


def imported(name: str, option: str, remedy: str, *, call: bool = True) -> Any:
    """Import "module:name" of the user's program; with `call`, a function stands for what it returns."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        with redirect_stdout(sys.stderr):  # the output of a server has a form
            found = resolve_name(name)
            return found() if call and callable(found) and not iscoroutinefunction(found) else found
    except ModuleNotFoundError as error:
        where = f"start this in the folder of {error.name}, or set PYTHONPATH; {remedy}"
        raise OptionError(f"{option} {name} failed: {error}", remedy=where) from error
    except (Exception, SystemExit) as error:  # of the program, which may do anything
        raise OptionError(f"{option} {name} failed: {type(error).__name__}: {error}", remedy=remedy) from error


def _imported(program: str) -> Memory:
    """Import "module:name": a `Memory`, or a function that returns one."""
    from langchain_workingmem.memory import Memory

    remedy = "pass --memory MODULE:NAME: a Memory, or a function without arguments that returns one"
    memory = imported(program, "--memory", remedy)
    if not isinstance(memory, Memory):
        raise OptionError(f"--memory {program} is of type {type(memory).__name__}", remedy=remedy)
    return memory


def existing(memory: Memory, thread: str, resource: str | None) -> Thread:
    """Return a thread, which must exist."""
    found = memory.threads.get(thread, resource_id=resource)
    if found is None:
        raise OptionError(f"there is no thread {thread!r}", remedy="`workingmem threads` lists the threads")
    return found


@contextmanager
def listing(*, hint: bool = True) -> Iterator[None]:
    """List no thread where there is no index of them, as on a server where only files are stored; a hint says so."""
    from langchain_workingmem._redis.indexes import lacks_index

    try:
        yield
    except OptionError as error:
        if not lacks_index(error):
            raise
        if hint:
            tell(f"No thread is listed, because there is no index of threads: {worded(error.remedy)}")


def stored_settings(memory: Memory) -> dict[str, Any]:
    """Read the settings of the vector index, empty if there is none. One round trip."""
    import json

    from langchain_workingmem._engine.effects import send

    (stored,) = memory._core.run(send(("GET", memory._core.state.keys.vectors_settings)))
    return dict(json.loads(stored)) if stored else {}


def _index(stored: dict[str, Any]) -> IndexOptions:
    names = {name: name for name in ("algorithm", "m", "ef_construction", "ef_runtime")}
    names |= {"distance": "distance_metric", "dtype": "datatype"}
    from langchain_workingmem.options import IndexOptions

    return IndexOptions(**{name: stored[theirs] for name, theirs in names.items() if theirs in stored})
