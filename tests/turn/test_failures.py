"""One turn that is refused, that fails in part, or that others disturb."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from langchain_workingmem import Memory, RecallOptions
from tests.helpers.conversations import accept
from tests.helpers.embeddings import WordEmbeddings
from tests.turn.test_context import TURN, Make, chat

if TYPE_CHECKING:
    from langchain_workingmem.embedded import EmbeddedRedis


def test_a_misspelled_argument_is_a_type_error_whether_recall_is_on_or_off(memory: Memory, plain: Memory) -> None:
    for one in (memory, plain):
        with pytest.raises(TypeError, match=r"unexpected keyword arguments \['last_message'\].*use some of"):
            one.context("Hello", **TURN, last_message=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_a_context_beside_deletions_never_fails(
    make_memory: Make, embeddings: WordEmbeddings, server: EmbeddedRedis, prefix: str, search: Any
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(search=search, top_k=20))
    words = [f"my cat {at}" for at in range(60)]
    for thread in ("t", "other"):
        chat(memory, *words, thread=thread)
    errors: list[BaseException] = []

    def delete() -> None:
        try:
            with Memory(server.url, embeddings=WordEmbeddings(), recall=RecallOptions(), key_prefix=prefix) as rival:
                for _ in range(3):
                    for thread in ("t", "other"):
                        for at in range(0, 60, 2):
                            rival.history.delete([f"{thread}-{at}"], thread_id=thread)
                        rival.threads.delete(thread)
                        chat(rival, *words, thread=thread)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            errors.append(error)

    rival = threading.Thread(target=delete)
    rival.start()
    turns = 0
    while rival.is_alive() or not turns:
        accept(memory.context("my cat", **TURN).messages)
        turns += 1
    rival.join()
    assert errors == []
