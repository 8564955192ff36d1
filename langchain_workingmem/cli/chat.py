"""`chat`: an agent with memory in the terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE
from langchain_workingmem.cli.base import Target  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.working_memory import KEEP_ALL, is_object
from langchain_workingmem.display.safe import clean
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFLINE = (
    "model: offline. It is no language model: it stores facts that you state, and quotes memory, by fixed rules. For a "
    "language model, set OPENAI_API_KEY or pass --model"
)
CHOSEN = {"message_range": (0, 1)}  # a hit and its answer


def chat(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:MODEL",
            help="Any model of LangChain's init_chat_model. Default: OpenAI's, if OPENAI_API_KEY is set, else offline, "
            "which quotes memory by fixed rules.",
        ),
    ] = None,
    resource: Annotated[str, typer.Option(help="Your id: memory is kept for it.")] = "me",
    thread: Annotated[str | None, typer.Option(help="The thread to continue. Default: a new one.")] = None,
    embeddings: Annotated[str, typer.Option(help="Embedding model, or none.", metavar="PROVIDER:NAME")] = "local",
    target: Target,
) -> None:
    """Talk to an agent with memory, which it keeps across threads and restarts.

    Without a URL or a directory, the memory is a private Redis in your data directory.
    """
    from langchain_workingmem.chat_models import chat_model_by_name
    from langchain_workingmem.cli.offline import Offline
    from langchain_workingmem.cli.talk import Chat

    has_key = os.environ.get("OPENAI_API_KEY")
    name = model or (f"openai:{os.environ.get('OPENAI_MODEL', 'gpt-4o-mini')}" if has_key else "offline")
    answering = Offline() if name == "offline" else chat_model_by_name(name)
    with target.opened(make=True, working_memory=WorkingMemoryOptions(template="")) as plain:
        if thread is not None:
            plain.threads.get(thread, resource_id=resource)  # fails now if the thread belongs to another resource
        options = _fitting(plain.working_memory.get(resource_id=resource).text)
        with target.recalling(embeddings, make=True, chosen=CHOSEN, working_memory=options) as memory:
            talk = Chat(memory, answering, resource, thread)
            talk.note(OFFLINE if name == "offline" else f"model: {name}")
            path = target.path(make=True)
            talk.note(f"memory: {'the Redis of your URL' if path is None else f'a private Redis in {path}'}")
            if options.read_only:
                talk.note("working memory is a JSON object of another program: it is shown, not changed")
            talk.note("/help lists the commands, /quit ends")
            talk.run(_lines())
    raise typer.Exit(talk.failed and not sys.stdin.isatty())


def _fitting(document: str) -> WorkingMemoryOptions:
    """Keep the form that working memory has; a JSON object, which a program keeps with a schema, is read only."""
    if is_object(document):
        return WorkingMemoryOptions(schema={"type": "object"}, read_only=True)
    if not document.strip() or DEFAULT_TEMPLATE.splitlines()[0] in document:
        return WorkingMemoryOptions(revisions=KEEP_ALL)
    return WorkingMemoryOptions(template="", mode="replace", revisions=KEEP_ALL)


def _lines() -> Iterator[str]:
    """Read the lines of the user. Lines from a pipe are printed as if they were typed."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - lets `input` edit lines
        with suppress(EOFError):
            while True:
                yield input("> ")
        return
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    for line in sys.stdin:
        typer.echo(f"> {clean(line.strip())}")
        yield line


COMMANDS = (chat,)
