"""The documented path of `RedisChatMessageHistory`, which lies in `faces`."""

from langchain_workingmem.faces.chat_history import RedisChatMessageHistory

__all__ = ["RedisChatMessageHistory"]
