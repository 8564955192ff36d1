"""Memory tools bound to a chat model, in your own loop: without an agent, without a graph.

python examples/bound_tools.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage, SystemMessage
from offline import calls, chat_model, knows, show

from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


def answer(memory: Memory, model: Any, text: str, thread_id: str, user_id: str) -> list[BaseMessage]:
    """Run one turn: show memory to the model, run its tool calls until it answers, save the turn."""
    # the ids are bound, so the model cannot choose another user
    tools = {tool.name: tool for tool in memory.tools(thread_id=thread_id, user_id=user_id)}
    bound = model.bind_tools(list(tools.values()))
    question = HumanMessage(text)
    turn: list[BaseMessage] = [question]
    while True:
        context = memory.context(turn, thread_id=thread_id, user_id=user_id)
        reply = bound.invoke([SystemMessage("You are brief."), *context.messages])
        turn.append(reply)
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            result = tools[call["name"]].invoke(call)
            print(f"  tool {call['name']}: {' '.join(str(result.text).split())[:90]}")
            turn.append(result)
    memory.save_turn(turn, thread_id=thread_id, user_id=user_id)
    return turn


def main() -> None:
    model = chat_model(
        calls("I am Maya", "update_working_memory", memory="- **Name**: Maya"),
        calls("Look up", "search_memory", query="allergic to which food"),
        knows("what is my name", "**Name**: Maya", "You are Maya."),
        lambda text, prompt: "You are allergic to shellfish." if not text and "shellfish" in prompt else None,
    )
    with Memory.embedded(
        embeddings=LocalEmbeddings(),
        working_memory=WorkingMemoryOptions(template="- **Name**:"),
    ) as memory:
        for thread_id, text in [
            ("monday", "I am Maya."),
            ("monday", "I am allergic to shellfish."),
            ("friday", "What is my name?"),
            ("friday", "Look up which food I must not eat."),
        ]:
            turn = answer(memory, model, text, thread_id, "maya")
            show(turn[0], turn[-1])


if __name__ == "__main__":
    main()
