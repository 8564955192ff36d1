"""Recall as a retriever: LangChain's own tests, ids, windows, and how it looks in a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_workingmem import IdError, Memory, OptionError, ThreadOwnershipError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import configured
from tests.helpers.types import Invoke

pytestmark = pytest.mark.in_turn("face")


OLD = ["my cat is Molly", "what a name", "my dog is Nougat", "sweet", "it rains", "it does"]


class TestByTheMemory(RetrieversIntegrationTests):
    """What LangChain asks of a retriever; ids are bound, because its tests pass no config."""

    memory: ClassVar[Memory]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _build(cls, server: EmbeddedRedis) -> Iterator[None]:
        with Memory(server.url, embeddings=WordEmbeddings(), key_prefix=cls.__name__) as cls.memory:
            cats = [HumanMessage(f"my cat {name}") for name in ("Molly", "Felix", "Tom")]
            cls.memory.history.append(cats, thread_id="t", user_id="ann")
            yield

    @property
    def retriever_constructor(self) -> Any:
        return self.memory.as_retriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"user_id": "ann"}

    @property
    def retriever_query_example(self) -> str:
        return "my cat"

    @property
    def num_results_arg_name(self) -> str:
        return "top_k"


@pytest.fixture
def filled(memory: Memory) -> Memory:
    kinds = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"m{at}") for at, text in enumerate(OLD)]
    memory.threads.create(user_id="ann", thread_id="pets", title="Pets")
    memory.history.append(messages, thread_id="pets", user_id="ann")
    memory.history.append([HumanMessage("my dog is Kestrel", id="b0")], thread_id="b", user_id="bob")
    return memory


def test_a_hit_is_a_document_with_its_window_that_says_where_it_comes_from(filled: Memory, invoke: Invoke) -> None:
    (document,) = invoke(filled.as_retriever(user_id="ann", top_k=1), "dog Nougat")
    (hit,) = filled.recall.search("dog Nougat", user_id="ann", top_k=1).hits
    assert document.page_content == "assistant: what a name\nuser: my dog is Nougat\nassistant: sweet"
    assert document.id == "m2"
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


def test_a_memory_without_recall_and_a_run_without_ids_say_what_to_pass(
    filled: Memory, plain: Memory, invoke: Invoke
) -> None:
    with pytest.raises(OptionError, match="recall"):
        invoke(plain.as_retriever(user_id="ann"), "my dog")
    with pytest.raises(IdError, match=r"user_id.*config\['configurable'\]"):
        invoke(filled.as_retriever(), "my dog")


def test_whose_messages_are_searched_from_within_somebody_elses_conversation(filled: Memory, invoke: Invoke) -> None:
    bound = filled.as_retriever(user_id="ann", scope="user", message_range=0, top_k=1)
    assert [one.page_content for one in invoke(bound, "my dog is", configured("b", "bob"))] == [
        "user: my dog is Nougat"
    ]
    with pytest.raises(ThreadOwnershipError):
        invoke(filled.as_retriever(scope="thread"), "my dog is", configured("b", "ann"))


def test_ids_are_not_arguments_of_a_call(filled: Memory, invoke: Invoke) -> None:
    with pytest.raises(IdError, match=r"user_id in the call.*as_retriever"):
        invoke(filled.as_retriever(user_id="ann"), "dog", user_id="bob")
