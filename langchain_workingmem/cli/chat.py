"""`chat`: an agent with memory in the terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE
from langchain_workingmem.cli.base import Dir, Prefix, Url, directory_of, opened, recalling
from langchain_workingmem.cli.working_memory import KEEP_ALL, is_object
from langchain_workingmem.display.safe import clean
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel

OFFLINE = (
    "model: offline, which is no language model: by rules it writes down facts that you state, and quotes memory. For a real "
    "one set OPENAI_API_KEY or pass --model"
)
CHOSEN = {"message_range": (0, 1)}  # a hit, and what was answered


def chat(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:MODEL",
            help="Any that LangChain's init_chat_model knows. Without it OpenAI's, if OPENAI_API_KEY is set, else offline: "
            "a stand-in that quotes memory, by rules.",
        ),
    ] = None,
    resource: Annotated[str, typer.Option(help="Who you are: memory is kept for this id.")] = "me",
    thread: Annotated[str | None, typer.Option(help="The conversation to go on with; a new one without it.")] = None,
    embeddings: Annotated[
        str, typer.Option(help="Embedding model of recall, or none.", metavar="PROVIDER:NAME")
    ] = "local",
    url: Url = None,
    directory: Dir = None,
    key_prefix: Prefix = "wm",
) -> None:
    """Talk to an agent that remembers, over conversations and restarts.

    Without a URL or a directory its memory is a private Redis in your data directory.
    """
    from langchain_workingmem.cli.talk import Conversation

    name = model or _default_model()
    answering = _model(name)
    with opened(url, directory, key_prefix, make=True, working_memory=WorkingMemoryOptions(template="")) as plain:
        if thread is not None:
            plain.threads.get(thread, resource_id=resource)  # somebody else's is refused before anything is said
        options = _fitting(plain.working_memory.get(resource_id=resource).text)
        with recalling(
            url, directory, key_prefix, embeddings, make=True, chosen=CHOSEN, working_memory=options
        ) as memory:
            conversation = Conversation(memory, answering, resource, thread)
            conversation.note(OFFLINE if name == "offline" else f"model: {name}")
            place = directory_of(url, directory, make=True)
            conversation.note(f"memory: {'the Redis of your URL' if place is None else f'a private Redis in {place}'}")
            if options.read_only:
                conversation.note("working memory is a JSON object that a program keeps: it is shown, not changed")
            conversation.note("/help lists commands, /quit ends")
            conversation.run(_lines())
    raise typer.Exit(conversation.failed and not sys.stdin.isatty())


def _default_model() -> str:
    if os.environ.get("OPENAI_API_KEY"):
        return f"openai:{os.environ.get('OPENAI_MODEL', 'gpt-4o-mini')}"
    return "offline"


def _model(name: str) -> BaseChatModel:
    if name == "offline":
        from langchain_workingmem.cli.offline import Offline

        return Offline()
    from langchain_workingmem.chat_models import chat_model_by_name

    return chat_model_by_name(name)


def _fitting(document: str) -> WorkingMemoryOptions:
    """Choose the form that working memory has already; what a program keeps along its schema is not touched."""
    if is_object(document):
        return WorkingMemoryOptions(schema={"type": "object"}, read_only=True)
    if not document.strip() or DEFAULT_TEMPLATE.splitlines()[0] in document:
        return WorkingMemoryOptions(revisions=KEEP_ALL)
    return WorkingMemoryOptions(template="", mode="replace", revisions=KEEP_ALL)


def _lines() -> Iterator[str]:
    """Read what the user says; where that is not typed, show it as if it were."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - gives `input` keys to edit with
        with suppress(EOFError):
            while True:
                yield input("> ")
        return
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    for line in sys.stdin:
        typer.echo(f"> {clean(line.strip())}")
        yield line
