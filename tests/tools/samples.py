"""What the tests of the tools share: a schema, a scripted model, its calls."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, Field

from langchain_workingmem import Memory
from tests.helpers.models import Scripted, calling
from tests.working_memory.samples import Home

TEMPLATE = "# User\n- **Name**:\n- **City**:\n"
UPDATE, GET, CLEAR, SEARCH = "update_working_memory", "get_working_memory", "clear_working_memory", "search_memory"


class Person(BaseModel):
    name: str | None = Field(None, description="What to call the person")
    age: int | None = Field(None, ge=0)
    home: Home = Home()
    work: Home | None = None
    pets: list[str] = []
    places: list[Home] = []


def calls(*arguments: dict[str, Any]) -> AIMessage:
    """One message of a model that updates working memory with each of these."""
    return calling(*((UPDATE, one) for one in arguments), id="call")


def results(messages: list[AnyMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def update_tool(memory: Memory, **ids: Any) -> BaseTool:
    (tool,) = memory.tools(**(ids or {"user_id": "ann"}), include=[UPDATE])
    return tool


def known(memory: Memory, user_id: str = "ann") -> Any:
    return json.loads(memory.working_memory.get(user_id=user_id).text or "{}")


def looping(memory: Memory, model: Scripted, *others: BaseTool, include: Any = None, **options: Any) -> Any:
    """A graph that loads once, then answers and calls tools in turns, and saves."""
    tools = [*others, *memory.tools(include=include)]
    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node()).add_node("tools", ToolNode(tools)).add_node("save", memory.save_node())
    graph.add_node("answer", lambda state: {"messages": [model.bind_tools(tools).invoke(state["messages"])]})
    graph.add_edge(START, "load").add_edge("load", "answer").add_edge("tools", "answer")
    graph.add_conditional_edges("answer", tools_condition, {"tools": "tools", "__end__": "save"})
    return graph.compile(**options)
