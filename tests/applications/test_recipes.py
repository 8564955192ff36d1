"""The recipes of the docs as whole applications, with a scripted model: what was it sent, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware, SummarizationMiddleware
from langchain_core.messages import BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.redis import RedisSaver

from langchain_workingmem import Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.middleware import MemoryMiddleware
from tests.adapters.claude import chat_model_of, fake_claude
from tests.helpers.examples import sample
from tests.helpers.models import Bench, Scripted, ask, calling, remembered, said, weather

pytestmark = pytest.mark.filterwarnings(
    "ignore:create_react_agent has been moved",  # langgraph-supervisor uses it
    "ignore:get_async_redis_connection will become",  # langgraph-checkpoint-redis calls it
)


# ---------------------------------------------------------------------- the order of middleware

MAIL = "ann@example.org"
FACT = "my cat is named Molly"


def knowing(bench: Bench) -> Memory:
    """Make a memory that has something to recall, and a working memory."""
    everything = RecallOptions(top_k=20, message_range=0)  # what a summary has taken away may be recalled, too
    memory = bench.recalling(recall=everything, working_memory=WorkingMemoryOptions(template=""))
    memory.history.append([HumanMessage(FACT, id="x")], thread_id="pets", user_id="ann")
    memory.working_memory.update("Ann lives in Oslo", user_id="ann")
    return memory


def orders() -> list[Any]:
    """Give memory each place among four others, in their order and the other way round; by default some of them."""
    both = ([0, 1, 2, 3], [3, 2, 1, 0])
    found = sample([[*others[:at], None, *others[at:]] for others in both for at in range(5)], 5)
    return [pytest.param(order, id="".join("m" if one is None else "prsc"[one] for one in order)) for order in found]


def marks(messages: list[BaseMessage]) -> list[int]:
    """Say how far in front of the last question the marked messages stand."""
    last = max(at for at, message in enumerate(messages) if message.type == "human")
    return [last - at for at, message in enumerate(messages) if "cache_control" in str(message.content)]


def in_order(page: dict[str, Any], memory: Memory, order: list[int | None], reducer: Any) -> list[Any]:
    others: list[Any] = [PIIMiddleware("email"), reducer, page["prompt"], page["MarkBeforeQuestion"]()]
    return [MemoryMiddleware(memory) if at is None else others[at] for at in order]


ASKED = [f"how is my cat named {MAIL} {at}" for at in range(5)]
WHOLE = [line for at in range(5) for line in (f"human: how is my cat named [REDACTED_EMAIL] {at}", f"ai: answer {at}")]


def talk(bench: Bench, middleware: list[Any], *, saver: bool = True) -> Scripted:
    model = Scripted.says(*[f"answer {at}" for at in range(5)])
    agent = create_agent(model, middleware=middleware, checkpointer=InMemorySaver() if saver else None)
    for text in ASKED:
        bench.run(agent, ask(text))
    return model


def check(memory: Memory, model: Scripted) -> None:
    """Memory's text is in each request, the prompt is whole, and what is stored is what people and model said."""
    for messages in model.seen:
        assert "Molly" in remembered(messages)
        assert "Ann lives in Oslo" in remembered(messages)
        assert said(messages)[0] == "system: You are terse."
        assert len({message.id for message in messages[1:]}) == len(messages) - 1
    kept = memory.history.messages("t", superseded=True)
    assert said(kept) == WHOLE
    assert all(isinstance(message.content, str) for message in kept)
    assert [dict(message.additional_kwargs) for message in kept] == [{}] * 10


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("how", ["trimming", "summary", "no checkpointer"])
def test_history_stays_short_and_its_end_marked_in_every_order(
    page: dict[str, Any], bench: Bench, how: str, order: list[int | None]
) -> None:
    memory = knowing(bench)
    summary = SummarizationMiddleware(Scripted.says(*["SUMMARY"] * 4), trigger=("messages", 5), keep=("messages", 2))
    middleware = in_order(page, memory, order, summary if how == "summary" else page["trim_messages"])
    model = talk(bench, middleware, saver=how != "no checkpointer")
    check(memory, model)
    sent = [said(messages)[1:] for messages in model.seen]
    if how == "trimming":  # LangChain's recipe keeps the first message, and three or four at the end
        assert (sent[1], sent[-1]) == (WHOLE[:3], [WHOLE[0], *WHOLE[5:9]])
    elif how == "summary":
        assert "SUMMARY" in sent[2][0]
        assert sent[2][1:] == WHOLE[3:5]
    else:  # memory has the history
        assert sent == [WHOLE[: 2 * at + 1] for at in range(5)]
    is_marked = how != "no checkpointer" or order.index(3) > order.index(None)
    assert [marks(messages) for messages in model.seen[1:]] == [[1] if is_marked else []] * 4


@pytest.mark.in_turn("face")
def test_the_marks_of_anthropic_stand_beside_ours(page: dict[str, Any], bench: Bench) -> None:
    anthropic = pytest.importorskip("langchain_anthropic.middleware", reason="needs langchain-anthropic")
    memory = knowing(bench)
    with fake_claude() as claude:
        claude.says("hello")
        claude.script.append([{"type": "tool_use", "id": "w", "name": "weather", "input": {"city": "Oslo"}}])
        claude.says("sunny")
        model = chat_model_of(claude)
        others = [page["prompt"], anthropic.AnthropicPromptCachingMiddleware(), page["MarkBeforeQuestion"]()]
        agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory), *others])
        bench.run(agent, ask("hi"))
        bench.run(agent, ask("how is my cat named?"))
    first, second, third = claude.seen
    for payload in (second, third):
        answer, question = payload["messages"][1:3]
        assert answer["content"][0]["cache_control"] == {"type": "ephemeral"}
        assert "Molly" in str(question)
        assert "cache_control" not in str(question)
        assert payload["system"][-1]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
        assert payload["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
        assert sum("cache_control" in tool for tool in payload["tools"]) == 1
        assert str(payload).count("cache_control") == 4
    assert second["tools"] == first["tools"]
    assert second["system"] == first["system"]
    assert second["messages"][0]["content"] == "hi"


# ---------------------------------------------------------------------- a checkpointer on the same Redis


@pytest.mark.parametrize("face", ["sync"], indirect=True)  # the twin of the saver is not ours
@pytest.mark.usefixtures("with_json")
def test_checkpoints_and_memory_share_an_embedded_redis(bench: Bench) -> None:
    with EmbeddedRedis() as server, RedisSaver.from_conn_string(server.url) as saver:
        saver.setup()
        memory = bench.recalling(redis_url=server.url, key_prefix="memory")
        model = Scripted.says("2", calling(("weather", {"city": "Oslo"}), id="a"), "4", "four", "6")
        agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)], checkpointer=saver)
        bench.run(agent, ask("1", "q1"))
        before = bench.run(agent, ask("3", "q3"))["messages"]
        turn = ["human: 1", "ai: 2", "human: 3", "ai: weather#a-0", "tool: sunny in Oslo", "ai: 4"]
        assert said(memory.history.messages("t")) == said(before) == turn
        # the answer is made anew
        gone = [RemoveMessage(id=message.id) for message in before[3:]]
        assert bench.run(agent, {"messages": gone})["messages"][-1].text == "four"
        bench.run(agent, ask("5"))
        assert said(model.seen[-1]) == ["human: 1", "ai: 2", "human: 3", "ai: four", "human: 5"]
        assert said(memory.history.messages("t")) == [*said(model.seen[-1]), "ai: 6"]
        with redis.Redis.from_url(server.url) as raw:
            prefixes = {key.partition(b":")[0].strip(b"{}") for key in raw.scan_iter("*")}
        assert {one for one in prefixes if not one.startswith((b"checkpoint", b"write_keys_zset"))} == {b"memory"}
        assert {finding.level for finding in memory.doctor().findings} == {"ok"}


# ---------------------------------------------------------------------- teams


def without_handing_back(lines: list[str]) -> list[str]:
    """Leave out what langgraph-supervisor writes under ids that it makes up."""
    return [line for line in lines if "back to supervisor" not in line and "transfer_back" not in line]


@pytest.mark.in_turn("face")
def test_a_supervisor_and_its_team_have_one_conversation(
    page: dict[str, Any], bench: Bench, saver: InMemorySaver | None
) -> None:
    memory = knowing(bench)
    over = [calling(("transfer_to_expert", {}), id=id) for id in "ab"]
    leads, expert = Scripted.says(over[0], "sunny", over[1], "rainy"), Scripted.says("it is sunny", "it rains")
    app = page["supervised"](leads, expert, memory).compile(checkpointer=saver)
    whole: list[str] = []
    for at, (text, word, answer) in enumerate([("1", "it is sunny", "sunny"), ("my cat", "it rains", "rainy")]):
        bench.run(app, ask(text))
        handed = [f"ai: transfer_to_expert#{'ab'[at]}-0", "tool: Successfully transferred to expert"]
        whole += [f"human: {text}", *handed, f"ai: {word}", f"ai: {answer}"]
    assert without_handing_back(said(memory.history.messages("t", superseded=True))) == whole
    assert without_handing_back(said(leads.seen[-1])[1:]) == whole[:-1]
    assert said(leads.seen[-1])[0] == "system: You lead."
    assert without_handing_back(said(expert.seen[-1])) == whole[:-2]
    assert "Molly" in remembered(leads.seen[2])
    assert "Molly" in remembered(expert.seen[1])
    assert remembered(expert.seen[1]).count("Molly") == 1


@pytest.mark.in_turn("face")
def test_a_swarm_has_one_conversation(page: dict[str, Any], bench: Bench, saver: InMemorySaver | None) -> None:
    memory = knowing(bench)
    last = "bob again" if saver else "alice again"  # without one the swarm forgets who was active
    alice = Scripted.says(calling(("transfer_to_bob", {}), id="a"), *(() if saver else [last]))
    bob = Scripted.says("bob here", *([last] if saver else ()))
    app = page["swarm_of"](alice, bob, memory).compile(checkpointer=saver)
    bench.run(app, ask("1"))
    bench.run(app, ask("how is my cat named"))
    handed = ["ai: transfer_to_bob#a-0", "tool: Successfully transferred to bob"]
    whole = ["human: 1", *handed, "ai: bob here", "human: how is my cat named", f"ai: {last}"]
    final = (bob if saver else alice).seen[-1]
    assert said(final) == whole[:-1]
    assert "Molly" in remembered(final)
    assert said(bob.seen[0]) == whole[:3]
    assert said(memory.history.messages("t", superseded=True)) == whole


@pytest.mark.in_turn("face")
def test_a_deep_agent_remembers_and_its_helpers_write_nothing(
    page: dict[str, Any], bench: Bench, saver: InMemorySaver | None
) -> None:
    memory = knowing(bench)
    model = Scripted.says(
        calling(("task", {"description": "look", "subagent_type": "scout"}), id="a"), "found", "Molly"
    )
    scout = Scripted.says("looked")
    agent = page["deep"](model, scout, memory, checkpointer=saver)
    bench.run(agent, ask("1"))
    bench.run(agent, ask("how is my cat named"))
    whole = ["human: 1", "ai: task#a-0", "tool: looked", "ai: found", "human: how is my cat named", "ai: Molly"]
    assert said(model.seen[-1])[1:] == whole[:-1]
    assert "Molly" in remembered(model.seen[-1])
    assert said(scout.seen[0])[-1] == "human: look"
    assert "Ann lives in Oslo" in remembered(scout.seen[0])
    assert said(memory.history.messages("t", superseded=True)) == whole
