"""A chat with an agent with memory, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import typer
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.console import Console

from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.cli.base import complain
from langchain_workingmem.cli.output import show, text
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import OptionError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem.memory import Memory

PROMPT = "You are a helpful assistant in a terminal. Answer briefly, in plain text."
WIDTH, TITLE = 160, 60  # characters of a note, of a title
HELP = """\
/memory         show working memory
/recall QUERY   search all your threads
/threads        list your threads
/new            begin a new thread
/quit           end (or Ctrl-D)"""


class Chat(BaseCallbackHandler):
    """An agent and its thread."""

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
                show(self._memory.working_memory.get(resource_id=self._resource), as_json=False)
            case "/recall" if not rest.strip():
                self.note("/recall QUERY: pass the words to search for")
            case "/recall":
                show(self._memory.recall.search(rest, resource_id=self._resource), as_json=False)
            case "/threads":
                show(self._memory.threads.list(resource_id=self._resource), as_json=False)
            case "/new":
                self._thread = _new_thread()
                self.note(f"a new thread: {self._thread}")
            case "/help":
                typer.echo(HELP)
            case _:
                self.note(f"{line} is not a command; /help lists the commands")


def _new_thread() -> str:
    return f"chat-{uuid4().hex[:8]}"
