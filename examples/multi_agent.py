"""A router reads memory and writes nothing. It chooses one of two specialists, which answer in one thread and write.

python examples/multi_agent.py
"""

from __future__ import annotations

from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from offline import chat_model, show

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware

ROUTE = "Say which agent answers: travel or billing. Use this one word only. When in doubt, say travel."
PROMPTS = {"travel": "You plan trips. Be brief.", "billing": "You answer questions about bills. Be brief."}


def build(memory: Memory, model: Any) -> Any:
    reading = MemoryMiddleware(memory, read_only=True)  # it sees the thread; its answers are not stored
    router: Any = create_agent(model, system_prompt=ROUTE, middleware=[reading])

    def route(state: MessagesState) -> Command[Literal["travel", "billing"]]:
        word = router.invoke({"messages": state["messages"]})["messages"][-1].text.lower()
        return Command(goto="billing" if "billing" in word else "travel")

    graph = StateGraph(MessagesState)
    graph.add_node("route", route)
    graph.add_edge(START, "route")
    for name, prompt in PROMPTS.items():
        graph.add_node(
            name, create_agent(model, system_prompt=prompt, middleware=[MemoryMiddleware(memory)], name=name)
        )
    return graph.compile()


def offline_rule(text: str, prompt: str) -> str:
    """Answer for all three agents; each has its own system prompt."""
    if ROUTE in prompt:
        return "billing" if "charged" in text else "travel"
    if PROMPTS["billing"] in prompt:
        trip = "your trip to Lisbon" if "Lisbon" in prompt else "I do not know what"
        return f"You were charged twice for {trip}; I pay one back."
    return "Lisbon is lovely in May."


def main() -> None:
    model = chat_model(offline_rule)
    with Memory.embedded(working_memory=WorkingMemoryOptions()) as memory:
        graph = build(memory, model)
        config = {"configurable": {"thread_id": "trip", "user_id": "maya"}}
        for text in ("I want to go to Lisbon.", "I was charged twice. For what?"):
            question = HumanMessage(text)
            for step in graph.stream({"messages": [question]}, config):
                if name := next((name for name in step if name in PROMPTS), None):
                    print(f"the router chose {name}")
                    show(question, step[name]["messages"][-1])
        stored = memory.history.messages("trip", user_id="maya")
        print(f"stored: {len(stored)} messages, by {', '.join(message.name or 'maya' for message in stored)}")


if __name__ == "__main__":
    main()
