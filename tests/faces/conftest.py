"""Fixtures that several files here need."""

from __future__ import annotations

import pytest

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from tests.faces.nodes_samples import Recording
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make


@pytest.fixture
def model() -> Recording:
    return Recording()


@pytest.fixture
def remembering(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory of two messages, with recall and working memory."""
    return make_memory(
        embeddings=embeddings,
        history=HistoryOptions(last_messages=2, step=1),
        recall=RecallOptions(top_k=1, message_range=0),
        working_memory=WorkingMemoryOptions(),
    )
