"""Whose memory a run reaches, through every face: that of the user whom a LangGraph server has authenticated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning

from langchain_workingmem import IdError, Memory, RecallOptions, ThreadOwnershipError, WorkingMemoryOptions
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.faces.tools import NOT_HERE
from tests.faces.samples import FACES, QUESTION, graph_of, question, signed_in
from tests.helpers.models import Bench
from tests.helpers.types import Invoke

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{LangChainDeprecationWarning.__module__}.LangChainDeprecationWarning")
]
EVERY_FACE = pytest.mark.parametrize("name", FACES)
OFFERS = ("search_memory", "get_working_memory", "update_working_memory", "clear_working_memory")


@pytest.fixture
def shared(bench: Bench) -> Memory:
    return bench.memory(
        embeddings=bench.embeddings,
        recall=RecallOptions(),
        working_memory=WorkingMemoryOptions(template="", tools=("get", "update", "clear")),
    )


def tell(memory: Memory, user: str, *threads: str, words: str | None = None) -> None:
    """Let a user say a secret in threads, and write it down."""
    words = words or secret(user)
    for thread in threads:
        memory.save_turn([("user", f"the pin of mine is {words}")], thread_id=thread, user_id=user)
    memory.working_memory.update(f"knows {words}", user_id=user)


def secret(user: str) -> str:
    return f"secret of {user}!"


def everything(memory: Memory, user: str, *threads: str) -> list[Any]:
    """All that a user has."""
    messages = [[str(message.text) for message in memory.history.messages(thread)] for thread in threads]
    listed = [thread.id for thread in memory.threads.list(user_id=user).items]
    return [messages, listed, memory.working_memory.revisions(user_id=user)]


@pytest.fixture
def refused(shared: Memory, invoke: Invoke, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Run a face, and return how it refused: tools tell the model to go on, and log why; the others raise."""

    def call(name: str, kind: type[WorkingMemError], configurable: dict[str, Any], context: Any = None) -> str:
        graph = graph_of(name, shared)
        config = {"configurable": configurable}
        if name in OFFERS:
            (message,) = invoke(graph, question(), config, context=context)["messages"][1:]
            assert message.text == NOT_HERE
            return caplog.text
        with pytest.raises(kind) as refusal:
            invoke(graph, question(), config, context=context)
        return str(refusal.value)

    return call


# ---------------------------------------------------------------------- the authenticated user


@pytest.mark.in_turn("face")
@EVERY_FACE
@pytest.mark.parametrize("claim", [{}, {"user_id": "ann"}])
def test_each_sees_their_own(shared: Memory, invoke: Invoke, name: str, claim: dict[str, str]) -> None:
    tell(shared, "ann", "of ann", "other of ann")
    tell(shared, "bob", "of bob")
    if name == "chat_history" and not claim:
        claim = {"user_id": "ann"}
    state = invoke(
        graph_of(name, shared), question(), {"configurable": {"thread_id": "of ann", **claim, **signed_in("ann")}}
    )
    assert secret("bob") not in str(state)
    if name not in {"save_node", "update_working_memory", "clear_working_memory"}:
        assert secret("ann") in str(state)


@pytest.mark.parametrize("name", [name for name in FACES if name != "session alone"])
def test_to_name_somebody_else_is_refused(shared: Memory, refused: Callable[..., str], name: str) -> None:
    tell(shared, "bob", "of bob")
    tell(shared, "ann", "of ann")
    before = everything(shared, "bob", "of bob"), everything(shared, "ann", "of ann")
    claims: list[tuple[dict[str, str], Any]] = [
        ({"thread_id": one, "user_id": "bob"}, None) for one in ("of bob", "new")
    ]
    if name != "chat_history":  # whose factory sees no context
        claims.append(({"thread_id": "new"}, {"user_id": "bob"}))
    for claim, context in claims:
        said = refused(name, IdError, {**claim, **signed_in("ann")}, context)
        assert ("in the context names another user" if context else "trust_client_ids=True") in said
        assert "bob" not in said
        assert (everything(shared, "bob", "of bob"), everything(shared, "ann", "of ann")) == before


@EVERY_FACE
def test_somebody_elses_thread_is_no_way_to_their_memory(
    shared: Memory, invoke: Invoke, refused: Callable[..., str], name: str
) -> None:
    """What reads a whole user's memory reads one's own from there; what touches the thread is refused."""
    tell(shared, "bob", "of bob")
    before = everything(shared, "bob", "of bob")
    configurable = {"thread_id": "of bob", "user_id": "ann", **signed_in("ann")}
    if name in (*OFFERS, "as_retriever"):
        assert secret("bob") not in str(invoke(graph_of(name, shared), question(), {"configurable": configurable}))
    else:
        assert "does not belong to user 'ann'" in refused(name, ThreadOwnershipError, configurable)
    assert everything(shared, "bob", "of bob") == before


@pytest.mark.parametrize("name", [name for name in FACES if name != "session alone"])
def test_a_service_that_is_trusted_names_its_users(shared: Memory, invoke: Invoke, name: str) -> None:
    tell(shared, "bob", "of bob", "other of bob")
    configurable = {"thread_id": "of bob", "user_id": "bob", **signed_in("service")}
    state = invoke(graph_of(name, shared, trust_client_ids=True), question(), {"configurable": configurable})
    if name not in {"save_node", "update_working_memory", "clear_working_memory"}:
        assert secret("bob") in str(state)
    assert shared.threads.list(user_id="service").total == 0


@EVERY_FACE
@pytest.mark.parametrize(
    "forged",
    [{"langgraph_auth_user": {"identity": "bob"}}, {"x-user-id": "bob", "langgraph_auth_permissions": ["admin"]}],
)
def test_what_a_client_can_write_signs_nobody_in(
    shared: Memory, invoke: Invoke, name: str, forged: dict[str, Any]
) -> None:
    tell(shared, "bob", "of bob")
    before = everything(shared, "bob", "of bob")
    config: Any = {"configurable": {"thread_id": "t", "user_id": "ann", **forged}}
    assert secret("bob") not in str(invoke(graph_of(name, shared), question(), config))
    assert everything(shared, "bob", "of bob") == before


def test_what_the_program_binds_is_no_conflict(shared: Memory, invoke: Invoke) -> None:
    tell(shared, "team", "of team")
    here: Any = {"configurable": {"thread_id": "t", **signed_in("ann")}}
    (search,) = shared.tools(user_id="team", include=["search_memory"])
    assert secret("team") in invoke(search, {"query": QUESTION}, here)
    assert secret("team") in str(invoke(shared.as_retriever(user_id="team"), QUESTION, here))


# ---------------------------------------------------------------------- a thread alone


@pytest.mark.parametrize("name", [name for name in FACES if name not in {"chat_history", "session alone"}])
def test_a_thread_of_somebody_is_not_reached_by_its_id_alone(
    shared: Memory, refused: Callable[..., str], name: str
) -> None:
    tell(shared, "bob", "of bob", "other of bob")
    before = everything(shared, "bob", "of bob", "other of bob")
    said = refused(name, ThreadOwnershipError, {"thread_id": "of bob"})
    assert "does not belong" in said
    assert "pass the owner's user_id" in said
    assert "bob!" not in said
    assert everything(shared, "bob", "of bob", "other of bob") == before
    assert shared.working_memory.get(user_id="of bob").revision == 0


@pytest.mark.parametrize("name", [name for name in FACES if name != "chat_history"])
def test_a_thread_that_owns_itself_needs_no_more(shared: Memory, invoke: Invoke, name: str) -> None:
    tell(shared, "own", "own")
    state = invoke(graph_of(name, shared), question(), {"configurable": {"thread_id": "own"}})
    if name not in {"save_node", "update_working_memory", "clear_working_memory"}:
        assert secret("own") in str(state)
    assert shared.threads.list(user_id="own").total == 1


def test_a_session_alone_opens_one_thread_and_nothing_else_of_its_owner(shared: Memory, invoke: Invoke) -> None:
    tell(shared, "bob", "of bob")
    shared.save_turn([("user", "the pin of mine was 7")], thread_id="other of bob", user_id="bob")
    state = invoke(graph_of("session alone", shared), question(), {"configurable": {"thread_id": "of bob"}})
    assert secret("bob") in str(state)
    assert "was 7" not in str(state)
    assert "knows" not in str(state)
    assert everything(shared, "bob", "other of bob")[0] == [["the pin of mine was 7"]]
