"""TODO."""

from langchain_workingmem.turn.api import Turn

__all__ = ["Turn"]
