"""Semantic recall, as `memory.recall`: find older messages that matter to a question, with the messages around them."""

from langchain_workingmem.recall.api import Recall
from langchain_workingmem.recall.authors import Authors
from langchain_workingmem.recall.query import Query, check_argument_names, checked_filter
from langchain_workingmem.recall.reindex import reindex_messages
from langchain_workingmem.recall.search import among_threads, find_candidates, search_as_run, search_messages
from langchain_workingmem.recall.windows import fetch_hits, messages_around

__all__ = [
    "Authors",
    "Query",
    "Recall",
    "among_threads",
    "check_argument_names",
    "checked_filter",
    "fetch_hits",
    "find_candidates",
    "messages_around",
    "reindex_messages",
    "search_as_run",
    "search_messages",
]
