"""`chat`: an agent with memory in the terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.console import Console

from langchain_workingmem.chat_models import chat_model_by_name
from langchain_workingmem.cli.base import Dir, Prefix, Url, complain, directory_of, opened, recalling
from langchain_workingmem.cli.offline import UPDATE, Offline
from langchain_workingmem.cli.output import show, text
from langchain_workingmem.cli.working_memory import KEEP_ALL, is_object
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.text.formats import DEFAULT_TEMPLATE, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem.memory import Memory

PROMPT = "You are a helpful assistant in a terminal. Answer briefly, in plain text."
OFFLINE = (
    "model: offline, which is no language model: by rules it writes down facts that you state, and quotes memory. For a real "
    "one set OPENAI_API_KEY or pass --model"
)
WIDTH, TITLE = 160, 60  # characters of a note, of a title
CHOSEN = {"message_range": (0, 1)}  # a hit, and what was answered
HELP = """\
/memory         working memory: what is kept about you
/recall QUERY   what your conversations hold about it
/threads        your conversations
/new            begin another conversation
/quit           end (Ctrl-D as well)"""


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
    name = model or _default_model()
    answering = _model(name)
    with opened(url, directory, key_prefix, make=True, working_memory=WorkingMemoryOptions(template="")) as plain:
        plain.threads.get(thread or "-", resource_id=resource)  # somebody else's is refused before anything is said
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
        return Offline()
    return chat_model_by_name(name)


def _fitting(document: str) -> WorkingMemoryOptions:
    """Choose the form that working memory has already; what a program keeps along its schema is not touched."""
    if is_object(document):
        return WorkingMemoryOptions(schema={}, read_only=True)
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


class Recalled(BaseCallbackHandler):
    """Tells what memory brings back, when it does."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def on_retriever_end(self, documents: Sequence[Document], **_: Any) -> None:
        """Note each hit."""
        for one in documents:
            title = one.metadata["thread_title"] or one.metadata["thread_id"]
            said = shorten(one.page_content.split("\n", 1)[0], WIDTH)  # the hit: its window begins with it
            self._note(f"recalled {one.metadata['similarity']:.2f} from {title!r}: {said}")


class Conversation:
    """An agent, and the thread that it is in."""

    def __init__(self, memory: Memory, model: BaseChatModel, resource: str, thread: str | None) -> None:
        try:
            from langchain_workingmem.middleware import MemoryMiddleware
        except ImportError as error:
            raise OptionError(str(error)) from error
        from langchain.agents import create_agent

        self._memory = memory
        self._resource = resource
        self._thread = thread or _new_thread()
        self._agent: Any = create_agent(model, middleware=[MemoryMiddleware(memory)], system_prompt=PROMPT)
        self._console = Console(highlight=False)
        self._in_line = False  # an answer stands without the end of its line
        self.failed = False

    def run(self, lines: Iterable[str]) -> None:
        """Answer line by line, until the lines end, or /quit."""
        try:
            for line in map(str.strip, lines):
                if line in {"/quit", "/exit"}:
                    break
                try:
                    self._command(line) if line.startswith("/") else self._turn(line)
                except Exception as error:  # noqa: BLE001 - each provider has errors of its own; the next turn may do
                    self._end_line()
                    kind = "" if isinstance(error, WorkingMemError) else f"{type(error).__name__}: "
                    complain(shorten(f"{kind}{error}", 1000))
                    self.failed = True
        except KeyboardInterrupt:
            typer.echo()

    def note(self, message: str) -> None:
        """Say something beside the conversation."""
        self._end_line()
        self._console.print(text(f"· {message}", "dim"), soft_wrap=True)

    # ------------------------------------------------------------------ a turn

    def _turn(self, said: str) -> None:
        if not said:
            return
        config = {
            "configurable": {"thread_id": self._thread, "user_id": self._resource},
            "callbacks": [Recalled(self.note)],
        }
        try:
            for message, _ in self._agent.stream({"messages": [HumanMessage(said)]}, config, stream_mode="messages"):
                self._hear(message)
        except KeyboardInterrupt:
            self.note("stopped")
        self._end_line()
        thread = self._memory.threads.get(self._thread)
        if thread is not None and thread.title is None:
            self._memory.threads.update(self._thread, title=shorten(said, TITLE))

    def _hear(self, message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            first, *rest = str(message.text).splitlines() or [""]
            for line in (rest if message.name == UPDATE else []) or [first]:
                self.note(f"{str(message.name).replace('_', ' ')}: {shorten(line, WIDTH)}")
        elif isinstance(message, AIMessage) and (words := str(message.text)):
            typer.echo(clean(words), nl=False)
            self._in_line = not words.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            typer.echo()
            self._in_line = False

    # ------------------------------------------------------------------ commands

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        match name:
            case "/memory":
                show(self._memory.working_memory.get(resource_id=self._resource), as_json=False)
            case "/recall" if rest.strip():
                show(self._memory.recall.search(rest, resource_id=self._resource), as_json=False)
            case "/threads":
                show(self._memory.threads.list(resource_id=self._resource), as_json=False)
            case "/new":
                self._thread = _new_thread()
                self.note(f"a new conversation: {self._thread}")
            case "/help":
                typer.echo(HELP)
            case _:
                self.note(f"{line} is no command; /help lists them")


def _new_thread() -> str:
    return f"chat-{uuid4().hex[:8]}"
