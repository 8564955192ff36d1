"""Semantic recall, as `memory.recall`: find older messages that matter to a question, with the messages around them."""

from langchain_workingmem.recall.api import Recall, reindex_messages
from langchain_workingmem.recall.hits import messages_around, words_in_row
from langchain_workingmem.recall.query import CHECKS, Query, check_argument_names, checked_filter
from langchain_workingmem.recall.question import Authors
from langchain_workingmem.recall.ranking import Ranked, Ranking
from langchain_workingmem.recall.search import search, search_as_run, search_messages
from langchain_workingmem.recall.turn import recall_for_turn

__all__ = [
    "CHECKS",
    "Authors",
    "Query",
    "Ranked",
    "Ranking",
    "Recall",
    "check_argument_names",
    "checked_filter",
    "messages_around",
    "recall_for_turn",
    "reindex_messages",
    "search",
    "search_as_run",
    "search_messages",
    "words_in_row",
]
