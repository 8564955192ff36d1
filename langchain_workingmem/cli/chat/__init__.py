"""`chat`: an agent with memory in the terminal. `talking` is the conversation, `offline` a model that needs no key."""

from langchain_workingmem.cli.chat.talking import chat

__all__ = ["chat"]
