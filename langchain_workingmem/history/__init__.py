"""TODO."""

from langchain_workingmem.history.api import History

__all__ = ["History"]
