"""One turn: what a model is shown before it answers, and what is saved after it."""

from langchain_workingmem.turn.api import Notes, Turn
from langchain_workingmem.turn.assemble import Shown, assemble, collect_contexts
from langchain_workingmem.turn.fit import history_slice, is_sliced, question, turn_of
from langchain_workingmem.turn.gather import Gathered, read_history

__all__ = [
    "Gathered",
    "Notes",
    "Shown",
    "Turn",
    "assemble",
    "collect_contexts",
    "history_slice",
    "is_sliced",
    "question",
    "read_history",
    "turn_of",
]
