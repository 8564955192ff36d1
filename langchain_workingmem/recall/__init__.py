"""TODO."""

from langchain_workingmem.recall.api import Recall

__all__ = ["Recall"]
