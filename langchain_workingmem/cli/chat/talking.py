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

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE
from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.cli.base import MaybeModel, Target, complain
from langchain_workingmem.cli.help import thread_ids
from langchain_workingmem.cli.streams import show, text
from langchain_workingmem.cli.working_memory import KEEP_ALL, is_object
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem.memory import Memory

OFFLINE = (
    "model: offline. It is no language model: it stores facts that you state, and quotes memory, by fixed rules. For a "
    "language model, set OPENAI_API_KEY or pass --model"
)
CHOSEN = {"message_range": (0, 1)}  # a hit and its answer
PROMPT = "You are a helpful assistant in a terminal. Answer briefly, in plain text."
WIDTH, TITLE = 160, 60  # characters of a note, of a title
HELP = """\
/memory         show working memory
/recall QUERY   search all your threads
/threads        list your threads
/new            begin a new thread
/quit           end (or Ctrl-D)"""


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
    resource: Annotated[str, typer.Option(metavar="ID", help="Your id: whose memory it is.")] = "me",
    thread: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The thread to continue. Default: a new one.", autocompletion=thread_ids),
    ] = None,
    embeddings: MaybeModel = "local",
    target: Target,
) -> None:
    """Talk to an agent with memory, which it keeps across threads and restarts.

    Examples:
        workingmem chat
        workingmem chat --model anthropic:claude-sonnet-4-5 --resource maya
        echo 'my dog is called Nougat' | workingmem chat

    Without a URL or a directory, the memory is a private Redis in your data directory.
    """
    from langchain_workingmem.chat_models import chat_model_by_name
    from langchain_workingmem.cli.chat.offline import Offline

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


class Chat(BaseCallbackHandler):
    """An agent and its thread."""

    def __init__(self, memory: Memory, model: BaseChatModel, resource: str, thread: str | None) -> None:
        try:
            from langchain_workingmem.faces.middleware import MemoryMiddleware
        except ImportError as error:
            raise OptionError(str(error), remedy="pip install 'langchain-workingmem[agents]'") from error
        from langchain.agents import create_agent

        self._memory = memory
        self._resource = resource
        self._thread = thread or _new_thread()
        self._agent: Any = create_agent(model, middleware=[MemoryMiddleware(memory)], system_prompt=PROMPT)
        self._console = Console(highlight=False)
        self._in_line = False  # the last line of output has no end yet
        self.failed = False

    def run(self, lines: Iterable[str]) -> None:
        """Answer line by line, until the lines end or /quit."""
        try:
            for line in map(str.strip, lines):
                if line in {"/quit", "/exit"}:
                    break
                try:
                    self._command(line) if line.startswith("/") else self._turn(line)
                except Exception as error:  # noqa: BLE001 - each provider has its own errors, and the next turn may work
                    self._end_line()
                    kind = "" if isinstance(error, WorkingMemError) else f"{type(error).__name__}: "
                    complain(shorten(f"{kind}{error}", 1000))
                    self.failed = True
        except KeyboardInterrupt:
            typer.echo()

    def note(self, message: str) -> None:
        """Print a dim line that is no answer."""
        self._end_line()
        self._console.print(text(f"· {message}", "dim"), soft_wrap=True)

    def on_retriever_end(self, documents: Sequence[Document], **_: Any) -> None:
        """Print the hits of recall."""
        for one in documents:
            title = one.metadata["thread_title"] or one.metadata["thread_id"]
            said = shorten(one.page_content.split("\n", 1)[0], WIDTH)  # the hit, which is the first of its window
            self.note(f"recalled {one.metadata['similarity']:.2f} from {title!r}: {said}")

    def _turn(self, said: str) -> None:
        if not said:
            return
        config = {"configurable": {"thread_id": self._thread, "user_id": self._resource}, "callbacks": [self]}
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
            for line in (rest if message.name == "update_working_memory" else []) or [first]:
                self.note(f"{str(message.name).replace('_', ' ')}: {shorten(line, WIDTH)}")
        elif isinstance(message, AIMessage) and (words := str(message.text)):
            typer.echo(clean(words), nl=False)
            self._in_line = not words.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            typer.echo()
            self._in_line = False

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        match name:
            case "/memory":
                show(self._memory.working_memory.get(resource_id=self._resource))
            case "/recall" if not rest.strip():
                self.note("/recall QUERY: pass the words to search for")
            case "/recall":
                show(self._memory.recall.search(rest, resource_id=self._resource))
            case "/threads":
                show(self._memory.threads.list(resource_id=self._resource))
            case "/new":
                self._thread = _new_thread()
                self.note(f"a new thread: {self._thread}")
            case "/help":
                typer.echo(HELP)
            case _:
                self.note(f"{line} is not a command; /help lists the commands")


def _new_thread() -> str:
    return f"chat-{uuid4().hex[:8]}"
