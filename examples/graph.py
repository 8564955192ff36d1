"""A StateGraph with memory in two nodes: one before the model, one after it. It needs no checkpointer.

python examples/graph.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from offline import chat_model, knows, show

from langchain_workingmem import LocalEmbeddings, Memory

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def build(memory: Memory, model: BaseChatModel) -> Any:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node())
    graph.add_node("answer", answer)
    graph.add_node("save", memory.save_node(), retry_policy=RetryPolicy())  # a repeated save stores nothing twice
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_edge("save", END)
    return graph.compile()


def main() -> None:
    model = chat_model(
        knows("my dog called", "Nougat", "Your dog is called Nougat."),
        knows("did i just ask", "How is my dog called?", "You asked how your dog is called."),
    )
    with Memory.embedded(embeddings=LocalEmbeddings()) as memory:
        graph = build(memory, model)
        for thread_id, user_id, text in [
            ("monday", "maya", "My dog is called Nougat."),
            ("friday", "maya", "How is my dog called?"),  # recalled from monday
            ("friday", "maya", "What did I just ask?"),  # history of friday
            ("other", "jonas", "How is my dog called?"),  # another user
        ]:
            question = HumanMessage(text)
            config = {"configurable": {"thread_id": thread_id, "user_id": user_id}}
            state = graph.invoke({"messages": [SystemMessage("You are brief."), question]}, config)
            print(f"{thread_id}, {user_id}")
            show(question, state["messages"][-1])
        print(f"stored on friday: {len(memory.history.messages('friday'))} messages")


if __name__ == "__main__":
    main()
