"""`chat`: an agent with memory in the terminal."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from langchain_workingmem.cli.base import KEEP_ALL, Model, Target, ThreadId, UserId, complain, tell
from langchain_workingmem.cli.streams import show
from langchain_workingmem.cli.working_memory import is_object
from langchain_workingmem.display.pictures import clean
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem.memory import Memory

OFFLINE = (
    "model: offline. It is no language model: it stores facts that you state, and quotes memory, by fixed rules. For a "
    "language model, set OPENAI_API_KEY or pass --model"
)
PROMPT = "You are a helpful assistant in a terminal. Answer briefly, in plain text."
TITLE = 60  # characters
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
    user: UserId = "me",
    thread: ThreadId = None,
    embeddings: Model = "local",
    target: Target,
) -> None:
    """Talk to an agent with memory, which it keeps across threads and restarts.

    Without a URL or a directory, the memory is a private Redis in your data directory.
    """
    from langchain_workingmem._engine.calls import chat_model_by_name
    from langchain_workingmem.cli.offline import Offline

    user = user or "me"
    name = model or (
        f"openai:{os.environ.get('OPENAI_MODEL', 'gpt-4o-mini')}" if os.environ.get("OPENAI_API_KEY") else "offline"
    )
    chat_model = Offline() if name == "offline" else chat_model_by_name(name)
    with target.opened(make=True, working_memory=WorkingMemoryOptions(template="")) as plain_memory:
        if thread is not None:
            plain_memory.threads.get(thread, user_id=user)  # fails now if the thread belongs to another user
        # a JSON object, which a program keeps with a schema, is read only
        is_json = is_object(plain_memory.working_memory.get(user_id=user).text)
    options = (
        WorkingMemoryOptions(schema={"type": "object"}, read_only=True)
        if is_json
        else WorkingMemoryOptions(template="", mode="replace", revisions=KEEP_ALL)
    )
    with target.recalling(embeddings, make=True, working_memory=options) as memory:
        talk = Chat(memory, chat_model, user, thread)
        tell(OFFLINE if name == "offline" else f"model: {name}")
        tell("/help lists the commands, /quit ends")
        with suppress(KeyboardInterrupt):
            talk.run()
    raise typer.Exit(1 if talk.failed and not sys.stdin.isatty() else 0)


def _lines() -> Iterator[str]:
    """Read the lines of the user."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401 - lets `input` edit lines
    with suppress(EOFError):
        while True:
            yield input("> " if sys.stdin.isatty() else "").strip()


class Chat:
    """An agent and its thread."""

    def __init__(self, memory: Memory, model: BaseChatModel, user: str, thread: str | None) -> None:
        try:
            from langchain_workingmem.middleware import MemoryMiddleware
        except ImportError as error:
            raise OptionError(str(error), remedy="pip install 'langchain-workingmem[agents]'") from error
        from langchain.agents import create_agent

        self._memory = memory
        self._user = user
        self._thread = thread or _new_thread()
        self._agent: Any = create_agent(model, middleware=[MemoryMiddleware(memory)], system_prompt=PROMPT)
        self.failed = False

    def run(self) -> None:
        """Answer line by line, until the lines end or /quit."""
        for line in filter(None, _lines()):
            if line == "/quit":
                break
            try:
                self._command(line) if line.startswith("/") else self._turn(line)
            except Exception as error:  # noqa: BLE001 - each provider has its own errors, and the next turn may work
                complain(f"{type(error).__name__}: {error}")
                self.failed = True

    def _turn(self, text: str) -> None:
        from langchain_core.messages import AIMessage, ToolMessage

        config = {"configurable": {"thread_id": self._thread, "user_id": self._user}}
        for message, _ in self._agent.stream({"messages": [("user", text)]}, config, stream_mode="messages"):
            if isinstance(message, ToolMessage):
                tell(f"· {message.name}: {message.text}")
            elif isinstance(message, AIMessage):
                typer.echo(clean(str(message.text)), nl=False)
        typer.echo()
        thread = self._memory.threads.get(self._thread)
        if thread is not None and thread.title is None:
            self._memory.threads.update(self._thread, title=text[:TITLE])

    def _command(self, line: str) -> None:
        name, _, query = line.partition(" ")
        match name:
            case "/memory":
                show(self._memory.working_memory.get(user_id=self._user))
            case "/recall" if query:
                show(self._memory.recall.search(query, user_id=self._user))
            case "/threads":
                show(self._memory.threads.list(user_id=self._user))
            case "/new":
                self._thread = _new_thread()
            case _:
                typer.echo(HELP)


def _new_thread() -> str:
    return f"chat-{uuid4().hex[:8]}"
