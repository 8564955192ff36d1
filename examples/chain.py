"""A chain with RunnableWithMessageHistory stores its history in Redis: only one argument changes.

python examples/chain.py
"""

from __future__ import annotations

import warnings
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from offline import chat_model, knows, show

from langchain_workingmem import HistoryOptions, Memory

# LangChain has deprecated this class in favour of LangGraph and keeps it until 2.0
warnings.filterwarnings("ignore", message=".*RunnableWithMessageHistory is deprecated.*")

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "You are brief."), MessagesPlaceholder("history"), ("human", "{question}")]
)


def build(memory: Memory, model: Any) -> Any:
    return RunnableWithMessageHistory(
        PROMPT | model,
        memory.chat_history,  # before: a dict of InMemoryChatMessageHistory
        history_factory_config=memory.config_specs,  # the config names the user too
        input_messages_key="question",
        history_messages_key="history",
    )


def main() -> None:
    model = chat_model(knows("my dog called", "Nougat", "Your dog is called Nougat."))
    with TemporaryDirectory() as folder:
        for text in ("My dog is called Nougat.", "How is my dog called?"):
            print("a new process")
            with Memory.embedded(folder, history=HistoryOptions(last_messages=20)) as memory:
                config = {"configurable": {"session_id": "chat-1", "user_id": "maya"}}
                answer = build(memory, model).invoke({"question": text}, config)
                show(HumanMessage(text), answer)
                print(f"  stored: {len(memory.chat_history('chat-1').messages)} messages")


if __name__ == "__main__":
    main()
