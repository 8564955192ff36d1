"""TODO."""

from langchain_workingmem.threads.api import Threads

__all__ = ["Threads"]
