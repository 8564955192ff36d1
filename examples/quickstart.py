"""A tour of memory on a private Redis: history, recall, and a restart. It needs no key and no download.

make quickstart
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage, SystemMessage, messages_from_dict

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langchain_workingmem import RecallResult

CONVERSATIONS = Path(__file__).with_name("conversations.json")
QUESTIONS = [
    ("maya", "What is the name of my dog?"),
    ("jonas", "What is the name of my dog?"),
    ("maya", "The caterer plans a starter of shrimps: am I allergic to them?"),
]


def main() -> None:
    data = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        heading("1. A private Redis starts, and the conversations of two users are stored")
        began = time.perf_counter()
        with open_memory(folder) as memory:
            say(f"Redis with Search runs after {time.perf_counter() - began:.1f} s. It keeps its data in a directory.")
            fill(memory, data)

            heading("2. The last messages of a thread")
            for message in memory.history.messages("maya-dog", user_id="maya", last=4):
                show(message)

            heading("3. Older messages that matter for a question, with the messages around each hit")
            for user_id, question in QUESTIONS:
                ask(memory, user_id, question)

            heading("4. The messages that a model gets in one turn")
            context = memory.context(
                "The caterer plans a starter of shrimps: am I allergic to them?",
                thread_id="maya-wedding",
                user_id="maya",
            )
            say(
                f"{len(context.messages)} messages: the last ones of this thread, and the question. The question now begins like this:"
            )
            print(textwrap.indent(shorten(str(context.messages[-1].text), 900), "    "))

        heading("5. The server has stopped. It starts again with the same directory")
        with open_memory(folder) as memory:
            threads = memory.threads.list()
            total = sum(thread.message_count for thread in threads)
            say(f"Still there: {threads.total} threads, {total} messages, and their vectors.")
            ask(memory, *QUESTIONS[0])
            ask_real_model(memory)


def open_memory(folder: str) -> Memory:
    return Memory.embedded(folder, embeddings=LocalEmbeddings(), recall=RecallOptions(top_k=2))


def fill(memory: Memory, data: dict[str, Any]) -> None:
    began = time.perf_counter()
    saved = 0
    for user_id, threads in data["users"].items():
        for thread in threads:
            memory.threads.create(
                user_id=user_id,
                thread_id=thread["thread_id"],
                title=thread["title"],
                metadata=thread["metadata"],
            )
            messages = messages_from_dict(thread["messages"])
            saved += len(memory.history.append(messages, thread_id=thread["thread_id"], user_id=user_id))
    say(f"{saved} messages, with tool calls, embedded and saved in {time.perf_counter() - began:.1f} s:")
    for thread in memory.threads.list(order_by="created_at", descending=False):
        print(f"    {thread.user_id:6} {thread.message_count:3} messages  {thread.title}")


def ask(memory: Memory, user_id: str, question: str) -> None:
    result: RecallResult = memory.recall.search(question, user_id=user_id)
    print(f"\n  {user_id} asks: {question}")
    for hit in result.hits:
        print(f"    -- similarity {hit.similarity:.2f}, in {hit.thread_title!r}")
        for message in hit.before:
            show(message)
        show(hit.message, mark="=>")
        for message in hit.after:
            show(message)


def ask_real_model(memory: Memory) -> None:
    heading("6. A real model")
    if not os.environ.get("OPENAI_API_KEY"):
        say("Skipped: set OPENAI_API_KEY, and a model answers with this memory.")
        return
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"))
    question = HumanMessage(
        "I meet the caterer tomorrow. What do I have to tell them about me, and how is my dog called?"
    )
    context = memory.context([question], thread_id="maya-wedding", user_id="maya")
    answer = model.invoke([SystemMessage("You are a helpful assistant."), *context.messages])
    memory.save_turn([question, answer], thread_id="maya-wedding", user_id="maya")
    show(question)
    show(answer)


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def say(text: str) -> None:
    print(f"  {text}")


def show(message: BaseMessage, mark: str = "  ") -> None:
    who = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
    calls = "".join(f"[calls {call['name']}] " for call in getattr(message, "tool_calls", []))
    print(f"    {mark} {who:>9}: {shorten(calls + str(message.text), 100)}")


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 4] + " ..."


if __name__ == "__main__":
    main()
