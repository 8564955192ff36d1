"""What commands share: options, a memory to work on, and errors that end in one line and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, redirect_stdout
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer
from typer.core import TyperGroup

from langchain_workingmem.checks import LARGEST, check_zone
from langchain_workingmem.display.pictures import clean, shown_in
from langchain_workingmem.errors import OptionError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.options import IndexOptions

DECLINED = 3
KEEP_ALL = LARGEST  # revisions: only the program decides how many are kept
_MODELS = "The embedding model: local, multilingual, openai:NAME or another provider:NAME"

UserId = Annotated[str | None, typer.Option("--user", help="The id of a user.")]
ThreadId = Annotated[str | None, typer.Option("--thread", help="The id of a thread.")]
OneUser = Annotated[str, typer.Option("--user", help="The id of the user.")]
OneThread = Annotated[str, typer.Option("--thread", help="The id of the thread.")]
Limit = Annotated[int, typer.Option(min=1, help="The number of entries on a page.")]
Cursor = Annotated[str | None, typer.Option(help="The start of the page, as printed below the previous page.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Form: TypeAlias = Annotated[Literal["table", "json"], typer.Option("--format", help="For people, or for programs.")]
Program = Annotated[
    str | None,
    typer.Option("--memory", metavar="MODULE:NAME", help="Your program's Memory, or a function that returns one."),
]
Model = Annotated[str, typer.Option("--embeddings", help=f"{_MODELS}; or none: no vectors.")]


def complain(message: object) -> None:
    """Print an error to standard error."""
    typer.echo(f"workingmem: {clean(str(message))}", err=True)


def tell(message: str) -> None:
    """Print a hint to standard error; standard output holds the result only."""
    typer.echo(clean(message), err=True)


def misused(message: str) -> NoReturn:
    """End the program with the exit code for a wrong call."""
    raise typer.BadParameter(message)


def confirm(question: str) -> None:
    """Ask, and end the program unless the user agrees. Without a terminal, `--yes` is required."""
    if not sys.stdin.isatty():
        misused(f"{question} There is no terminal to answer at: pass --yes")
    if not typer.confirm(clean(question), err=True):
        tell("Nothing was changed.")
        raise typer.Exit(DECLINED)


class Commands(TyperGroup):
    """Turns our errors into one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except WorkingMemError as error:
            complain(". ".join([str(error), *getattr(error, "__notes__", ())]))
            raise typer.Exit(1) from None


# ---------------------------------------------------------------------- memories


@dataclass(frozen=True, kw_only=True)
class Target:
    """The memory that a command works on. Each field is an option of each command that has a parameter `target`."""

    url: Annotated[str | None, typer.Option(envvar="REDIS_URL", help="A Redis: redis://, rediss:// or unix://.")] = None
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Instead of a URL: a private Redis with its data here. Default: that of `chat`."),
    ] = None
    key_prefix: Annotated[str, typer.Option(help="The prefix of all keys.")] = "wm"
    timezone: Annotated[str | None, typer.Option(help="The zone of all times, such as Asia/Tokyo. Default: UTC.")] = (
        None
    )

    def path(self, *, make: bool) -> Path | None:
        """Return the directory of the private Redis, None for a URL. Without `make`, the directory must exist."""
        if self.directory is None and self.url is not None:
            return None
        from platformdirs import user_data_path

        path = (self.directory or user_data_path("langchain-workingmem", appauthor=False)).expanduser()
        if not make and not path.is_dir():
            remedy = "pass --url or --dir, set REDIS_URL, or begin with `workingmem chat`"
            raise OptionError(f"there is no memory in {path}", remedy=remedy)
        return path

    def opened(self, *, make: bool = False, **options: Any) -> AbstractContextManager[Memory]:
        """Open the memory, and close it. Only `make` creates indexes and directories."""
        from langchain_workingmem.memory import Memory

        path = self.path(make=make)
        common = {"key_prefix": self.key_prefix, "create_index": make, "timezone": self.timezone or "UTC", **options}
        return closing(Memory(self.url, **common) if path is None else Memory.embedded(path, **common))

    def of_program(
        self, program: str | None, embeddings: str, *, make: bool = False, **options: Any
    ) -> AbstractContextManager[Memory]:
        """Open the memory that a program has made, with its options; without `program` this one, with recall.

        The times that a model is shown are those of the program, unless `--timezone` names a zone.
        """
        if program is None:
            return self.recalling(embeddings, make=make, **options)
        from langchain_workingmem.memory import Memory

        remedy = "pass --memory MODULE:NAME: a Memory, or a function without arguments that returns one"
        memory = imported(program, "--memory", remedy)
        if not isinstance(memory, Memory):
            raise OptionError(f"--memory {program} is of type {type(memory).__name__}", remedy=remedy)
        memory._core.state.timezone = self.timezone or memory._core.state.timezone
        if not make:
            memory._core.state.indexes.create = False  # whatever its options say: who looks changes nothing
        return closing(memory)

    @contextmanager
    def recalling(
        self, embeddings: str, *, make: bool = False, other_model: bool = False, **options: Any
    ) -> Iterator[Memory]:
        """Open the memory with recall, on the index as it was built. The model "none" leaves recall off.

        Vectors of another model are refused, unless `other_model` allows them.
        """
        if embeddings == "none":
            with self.opened(make=make, **options) as memory:
                yield memory
            return
        from langchain_workingmem.options import RecallOptions

        with self.opened(make=make) as plain_memory:
            settings = stored_settings(plain_memory)
            recall = RecallOptions(index=_index(settings))
            with self.opened(make=make, embeddings=embeddings, recall=recall, **options) as memory:
                model = memory._core.state.indexes.model
                if settings.get("model", model) != model and not other_model:
                    raise OptionError(
                        f"the vectors here were made by {settings['model']!r}, and --embeddings {embeddings} is {model!r}",
                        remedy="pass that model, or change all vectors with `workingmem reindex`",
                    )
                yield memory


def targeted(run: Any) -> Callable[..., None]:
    """Give a command the options of a target in place of its parameter `target`; what it shows has the target's zone."""
    parameters = [parameter for name, parameter in signature(run, eval_str=True).parameters.items() if name != "target"]
    fields_of_target = signature(Target, eval_str=True).parameters.values()
    options = [option.replace(kind=Parameter.KEYWORD_ONLY) for option in fields_of_target]

    @wraps(run)
    def called(**arguments: Any) -> None:
        target = Target(**{field.name: arguments.pop(field.name) for field in fields(Target)})
        with shown_in(check_zone(target.timezone or "UTC", "--timezone")):
            run(**arguments, target=target)

    called.__signature__ = Signature([*parameters, *options])  # type: ignore[attr-defined] # typer reads both
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*parameters, *options)}
    return called


def owner(user: str | None, thread: str | None) -> dict[str, Any]:
    """Return the ids of whose data it is: of the thread if there is one, else of the user."""
    if user is None and thread is None:
        misused("pass --user, for the data of a user, or --thread, for the data of one thread")
    return {"user_id": user, "thread_id": thread}


def scope(thread: str | None) -> Literal["user", "thread"]:
    """Return the scope of an owner."""
    return "user" if thread is None else "thread"


def existing(memory: Memory, thread: str | None, user: str | None) -> None:
    """Fail unless a thread that is named exists."""
    if thread is not None and memory.threads.get(thread, user_id=user) is None:
        raise OptionError(f"there is no thread {thread!r}", remedy="`workingmem threads` lists the threads")


def is_empty(memory: Memory) -> bool:
    """Tell whether nothing was ever stored. One round trip."""
    return memory._core.run(memory._core.state.indexes.missing())


def nothing_yet(memory: Memory) -> bool:
    """Tell whether nothing was ever stored, and say what helps."""
    empty = is_empty(memory)
    if empty:
        tell(
            "Nothing is stored here yet. Talk to `workingmem chat`, store a turn with Memory.save_turn, or run "
            "`workingmem import`; if you expected data, check --url, --dir and --key-prefix"
        )
    return empty


def imported(name: str, option: str, remedy: str, *, call: bool = True) -> Any:
    """Import "module:name" of the user's program; with `call`, a function stands for what it returns."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        with redirect_stdout(sys.stderr):  # the output of a server has a form
            value = resolve_name(name)
            return value() if call and callable(value) and not iscoroutinefunction(value) else value
    except Exception as error:  # of the program, which may do anything
        raise OptionError(f"{option} {name} failed: {type(error).__name__}: {error}", remedy=remedy) from error


def stored_settings(memory: Memory) -> dict[str, Any]:
    """Read the settings of the vector index, empty if there is none. One round trip."""
    from langchain_workingmem._engine.plan import send

    (reply,) = memory._core.run(send(("GET", memory._core.state.keys.vectors_settings)))
    return dict(json.loads(reply)) if reply else {}


def _index(settings: dict[str, Any]) -> IndexOptions:
    from langchain_workingmem.options import IndexOptions

    names = {name: name for name in ("algorithm", "m", "ef_construction", "ef_runtime")}
    names |= {"distance": "distance_metric", "dtype": "datatype"}
    return IndexOptions(**{name: settings[key] for name, key in names.items() if key in settings})
