"""Observations: a long conversation as a short, dated log with its sources. Importing this room registers its hooks."""

from langchain_workingmem.observations import hooks as hooks
from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.observing import observe_now, observe_user, pending_tokens
from langchain_workingmem.observations.reading import opened

__all__ = ["Observations", "observe_now", "observe_user", "opened", "pending_tokens"]
