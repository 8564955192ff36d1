"""Observations: a long conversation as a short, dated log with its sources. Importing this room registers its hooks."""

from langchain_workingmem.observations import hooks as hooks
from langchain_workingmem.observations.answers import BadAnswer, check_end, read_answer
from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.observer.batches import Group, Opened, body_digest, groups_of
from langchain_workingmem.observations.observer.questions import questions_before
from langchain_workingmem.observations.observing import observe_now, pending_tokens
from langchain_workingmem.observations.prompts import escaped, shown_messages, with_instructions
from langchain_workingmem.observations.reflecting import ATTEMPTS, Usage, ask

__all__ = [
    "ATTEMPTS",
    "BadAnswer",
    "Group",
    "Observations",
    "Opened",
    "Usage",
    "ask",
    "body_digest",
    "check_end",
    "escaped",
    "groups_of",
    "observe_now",
    "pending_tokens",
    "questions_before",
    "read_answer",
    "shown_messages",
    "with_instructions",
]
