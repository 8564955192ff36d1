"""Fixtures that several files here need."""

from __future__ import annotations

import pytest

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make


@pytest.fixture
def brief(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """Shows two messages of the history, and recalls one without its neighbours."""
    return make_memory(
        embeddings=embeddings,
        recall=RecallOptions(top_k=1, message_range=0),
        history=HistoryOptions(last_messages=2, step=1),
    )
