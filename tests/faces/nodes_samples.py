"""What the tests of the nodes share: a model that records, a graph with both nodes, and what was said in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import ConfigDict, Field

from langchain_workingmem import Memory
from tests.helpers.conversations import accept
from tests.helpers.models import own

Config = dict[str, Any]


class Recording(BaseChatModel):
    """Answers by its script, else "re: <the user's words>"; keeps what it was shown, as strict as a provider."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)
    script: list[AIMessage | Exception] = Field(default_factory=list)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @property
    def _llm_type(self) -> str:
        return "recording"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        accept(messages)
        self.seen.append(list(messages))
        said = self.script.pop(0) if self.script else AIMessage(f"re: {texts(messages[-1:])[0]}")
        if isinstance(said, Exception):
            raise said
        return ChatResult(generations=[ChatGeneration(message=said)])


def who(thread_id: str = "t", user_id: str = "ann") -> Config:
    return {"configurable": {"thread_id": thread_id, "user_id": user_id}}


def chat(memory: Memory, model: Recording, **options: Any) -> Any:
    """Load, answer, save; the answer is a node of the user's."""
    compiled = {name: options.pop(name) for name in ("checkpointer", "retry_policy") if name in options}
    schema = options.pop("context_schema", None)
    graph = StateGraph(MessagesState, context_schema=schema)
    graph.add_node("load", memory.load_node(**options))
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("save", memory.save_node(), retry_policy=compiled.pop("retry_policy", None))
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_edge("save", END)
    return graph.compile(**compiled)


def say(*texts: str) -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(text) for text in texts]}


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    """What messages say, without what memory has put in front of a question."""
    return [str(message.text) for message in own(messages)]


def spoken(messages: Sequence[BaseMessage]) -> list[str]:
    """What people and models said: no system messages."""
    return texts([message for message in messages if not isinstance(message, SystemMessage)])


def stored(memory: Memory, thread_id: str = "t") -> list[str]:
    return texts(memory.history.messages(thread_id))
