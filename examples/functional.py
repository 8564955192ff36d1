"""Memory in LangGraph's functional API: `acontext` before the model, `asave_turn` after it, each in a task.

python examples/functional.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangGraph injects it by its annotation
from langgraph.func import entrypoint, task
from offline import chat_model, knows, show

from langchain_workingmem import LocalEmbeddings, Memory


def build(memory: Memory, model: Any) -> Any:
    @task
    async def answer(question: HumanMessage, thread_id: str, user_id: str) -> BaseMessage:
        context = await memory.acontext([question], thread_id=thread_id, user_id=user_id)
        found: BaseMessage = await model.ainvoke([SystemMessage("You are brief."), *context.messages])
        return found

    @task
    async def save(turn: list[BaseMessage], thread_id: str, user_id: str) -> None:
        await memory.asave_turn(turn, thread_id=thread_id, user_id=user_id)

    @entrypoint()
    async def chat(question: HumanMessage, config: RunnableConfig) -> BaseMessage:
        ids = config["configurable"]["thread_id"], config["configurable"]["user_id"]
        answered = await answer(question, *ids)
        await save([question, answered], *ids)
        return answered

    return chat


async def run() -> None:
    model = chat_model(knows("my dog called", "Nougat", "Your dog is called Nougat."))
    async with Memory.embedded(embeddings=LocalEmbeddings()) as memory:
        chat = build(memory, model)
        for thread_id, text in [("monday", "My dog is called Nougat."), ("friday", "How is my dog called?")]:
            question = HumanMessage(text)
            config = {"configurable": {"thread_id": thread_id, "user_id": "maya"}}
            print(thread_id)
            show(question, await chat.ainvoke(question, config))
        threads = await memory.threads.alist(user_id="maya")
        print(f"stored: {threads.total} threads, {sum(thread.message_count for thread in threads.items)} messages")


if __name__ == "__main__":
    asyncio.run(run())
