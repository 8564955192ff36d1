from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from langchain_workingmem import (
    HistoryOptions,
    IndexOptions,
    Memory,
    OptionError,
    RecallOptions,
    WorkingMemError,
)
from langchain_workingmem.middleware import MemoryMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HistoryOptions(last_messages=-1), ["last_messages=-1", "int of at least 0"]),
        (lambda: HistoryOptions(media="first"), ["media='first'"]),  # type: ignore[arg-type]
        (lambda: HistoryOptions(token_counter="exact"), ["token_counter='exact'", "'approximate'"]),  # type: ignore[arg-type]
        (lambda: HistoryOptions(exclude_tools="search"), ["exclude_tools='search'", "list of tool names"]),
        (lambda: HistoryOptions(roles=[]), ["roles is empty", "at least one role, or leave it out"]),
        (lambda: RecallOptions(message_range=(1, 2, 3)), ["message_range=(1, 2, 3)", "pair (before, after)"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(scope="resource"), ["scope='resource'", "'user'", "'thread'"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(threshold=float("nan")), ["threshold=nan", "0 to 1"]),
        (lambda: RecallOptions(embedding_timeout=30), ["embedding_timeout=30", "positive timedelta"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(index={"m": 4}), ["index is of type dict", "IndexOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(recall={"top_k": 3}), ["recall is of type dict", "RecallOptions(...)"]),  # type: ignore[arg-type]
        (lambda: Memory(embeddings=5, recall=RecallOptions()), ["embeddings is of type int", "'local'"]),  # type: ignore[arg-type]
        (lambda: MemoryMiddleware("x"), ["memory is of type str", "Memory(...)"]),  # type: ignore[arg-type]
        (lambda: RecallOptions(filterable="topic"), ["filterable='topic'", "list of metadata keys"]),
        (lambda: IndexOptions(algorithm="svs"), ["algorithm='svs'", "'flat'", "'hnsw'"]),  # type: ignore[arg-type]
        (lambda: IndexOptions(dtype="int8", distance="ip"), ["dtype='int8'", "distance='cosine'"]),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_what_was_seen_and_the_remedy(
    make: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, WorkingMemError)
    for word in words:
        assert word in str(caught.value)
