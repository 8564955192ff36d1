"""One turn: what a model is shown before it answers, and what is saved after it; `Memory.context` and `Memory.save_turn`."""

from langchain_workingmem.turn.api import Turn
from langchain_workingmem.turn.made import collect_contexts
from langchain_workingmem.turn.messages import (
    note_branch,
    note_saved_branch,
    noted_branch,
    question,
    to_save,
    turn_of,
    unsaved,
)
from langchain_workingmem.turn.operations import TURN, Gathered, hidden_positions, read_history

__all__ = [
    "TURN",
    "Gathered",
    "Turn",
    "collect_contexts",
    "hidden_positions",
    "note_branch",
    "note_saved_branch",
    "noted_branch",
    "question",
    "read_history",
    "to_save",
    "turn_of",
    "unsaved",
]
