"""An agent gets memory with one line: tomorrow, in a new process and a new thread, it remembers what you say today.

python examples/agent.py
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from offline import calls, chat_model, knows, show
from pydantic import BaseModel

from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware


class User(BaseModel):
    """The facts that the agent keeps about a user."""

    name: str | None = None
    dog: str | None = None


def open_memory(folder: str) -> Memory:
    return Memory.embedded(
        folder,
        embeddings=LocalEmbeddings(),
        working_memory=WorkingMemoryOptions(schema=User),
    )


def main() -> None:
    model = chat_model(
        calls("My dog is called Nougat", "update_working_memory", memory={"dog": "Nougat"}),
        knows("my dog called", "Nougat", "Your dog is called Nougat."),
        knows("am i allergic", "shellfish", "You are allergic to shellfish."),
    )
    with TemporaryDirectory() as folder:
        for thread_id, texts in [
            ("monday", ["My dog is called Nougat.", "I am allergic to shellfish."]),
            ("friday", ["How is my dog called?", "What am I allergic to?"]),
        ]:
            print(f"{thread_id}: Redis starts with the data of this directory, as in a new process")
            with open_memory(folder) as memory:
                agent: Any = create_agent(model, middleware=[MemoryMiddleware(memory)])  # this line
                config = {"configurable": {"thread_id": thread_id, "user_id": "maya"}}
                for text in texts:
                    question = HumanMessage(text)
                    show(question, agent.invoke({"messages": [question]}, config)["messages"][-1])
                print(f"  known about maya: {memory.working_memory.get(user_id='maya').text}")


if __name__ == "__main__":
    main()
