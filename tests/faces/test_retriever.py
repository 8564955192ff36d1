"""Recall as a retriever: LangChain's own tests, ids, windows, and how it looks in a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_workingmem import IdError, Memory, OptionError, RecallOptions, ThreadOwnershipError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings

pytestmark = pytest.mark.in_turn("face")

Invoke = Callable[..., Any]

OLD = ["my cat is Molly", "what a name", "my dog is Nougat", "sweet", "it rains", "it does"]


# ---------------------------------------------------------------------- LangChain's own tests


class _Standard(RetrieversIntegrationTests):
    """What LangChain asks of a retriever; ids are bound, because its tests pass no config."""

    memory: ClassVar[Memory]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _build(cls, server: EmbeddedRedis) -> Iterator[None]:
        with Memory(
            server.url, embeddings=WordEmbeddings(), recall=RecallOptions(), key_prefix=cls.__name__
        ) as cls.memory:
            cls.memory.history.append(
                [HumanMessage(text) for text in ("my cat Molly", "my cat Felix", "my cat Tom")],
                thread_id="t",
                user_id="ann",
            )
            yield

    @property
    def retriever_query_example(self) -> str:
        return "my cat"

    @property
    def num_results_arg_name(self) -> str:
        return "top_k"


class TestByTheMemory(_Standard):
    @property
    def retriever_constructor(self) -> Any:
        return self.memory.as_retriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"user_id": "ann"}


# ---------------------------------------------------------------------- what comes back


@pytest.fixture
def filled(memory: Memory) -> Memory:
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"m{at}") for at, text in enumerate(OLD)]
    memory.threads.create(user_id="ann", thread_id="pets", title="Pets")
    memory.history.append(messages, thread_id="pets", user_id="ann")
    memory.history.append([HumanMessage("my dog is Kestrel", id="b0")], thread_id="b", user_id="bob")
    return memory


def who(thread_id: str | None = None, user_id: str | None = None) -> RunnableConfig:
    ids = {"thread_id": thread_id, "user_id": user_id}
    return {"configurable": {name: value for name, value in ids.items() if value is not None}}


def contents(documents: list[Document]) -> list[str]:
    return [document.page_content for document in documents]


def said(*texts: str) -> list[str]:
    return [f"user: {text}" for text in texts]


def test_a_hit_is_a_document_with_its_window(filled: Memory, invoke: Invoke) -> None:
    (document,) = invoke(filled.as_retriever(user_id="ann", top_k=1), "dog Nougat")
    assert document.page_content == "assistant: what a name\nuser: my dog is Nougat\nassistant: sweet"
    assert document.id == "m2"


def test_the_metadata_says_where_a_hit_comes_from(filled: Memory, invoke: Invoke) -> None:
    (document,) = invoke(filled.as_retriever(user_id="ann", top_k=1), "dog Nougat")
    (hit,) = filled.recall.search("dog Nougat", user_id="ann", top_k=1).hits
    assert document.metadata == {
        "thread_id": "pets",
        "thread_title": "Pets",
        "message_id": "m2",
        "role": "human",
        "similarity": hit.similarity,
        "score": hit.score,
        "stored_at": hit.stored_at.isoformat(),
    }
    assert 0 < hit.similarity <= 1


@pytest.mark.parametrize("bound", [None, 2])
def test_top_k_of_a_call_counts_more(filled: Memory, invoke: Invoke, bound: int | None) -> None:
    retriever = filled.as_retriever(user_id="ann", top_k=bound)
    assert [len(invoke(retriever, "my dog", top_k=number)) for number in (1, 3)] == [1, 3]
    assert len(invoke(retriever, "my dog")) == (bound or 4)


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ({"since": "m2"}, {"m2", "m3", "m4", "m5"}),
        ({"until": "m2"}, {"m0", "m1", "m2"}),
        ({"exclude_message_ids": ("m0", "m4")}, {"m1", "m2", "m3", "m5"}),
        ({"roles": "user"}, {"m0", "m2", "m4"}),
    ],
    ids=["since", "until", "ids", "a role"],
)
def test_what_is_bound_narrows_the_search(
    filled: Memory, invoke: Invoke, bound: dict[str, Any], found: set[str]
) -> None:
    times = {row.message.id: row.stored_at for row in filled.history.page("pets")}
    bound = {name: times[value] if name in {"since", "until"} else value for name, value in bound.items()}
    retriever = filled.as_retriever(user_id="ann", top_k=10, message_range=0, **bound)
    assert {document.id for document in invoke(retriever, "my dog is what")} == found


def test_a_memory_without_recall_has_no_retriever(plain: Memory, invoke: Invoke) -> None:
    with pytest.raises(OptionError, match="recall"):
        invoke(plain.as_retriever(user_id="ann"), "my dog")


# ---------------------------------------------------------------------- ids


def test_a_bound_user_is_searched_from_within_somebody_elses_conversation(filled: Memory, invoke: Invoke) -> None:
    retriever = filled.as_retriever(user_id="ann", scope="user", message_range=0, top_k=1)
    assert contents(invoke(retriever, "my dog is", who("b", "bob"))) == said("my dog is Nougat")


def test_a_thread_of_somebody_else_is_no_scope(filled: Memory, invoke: Invoke) -> None:
    with pytest.raises(ThreadOwnershipError):
        invoke(filled.as_retriever(scope="thread"), "my dog is", who("b", "ann"))


def test_without_ids_it_says_how_to_pass_them(filled: Memory, invoke: Invoke) -> None:
    with pytest.raises(IdError, match=r"user_id.*config\['configurable'\]"):
        invoke(filled.as_retriever(), "my dog")
