"""All that needs no extra: python core.py URL PREFIX."""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage, messages_to_dict
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.importers import from_langchain
from langchain_workingmem.store import RedisMemoryStore

URL, PREFIX = sys.argv[1:]
IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}

model = DeterministicFakeEmbedding(size=8)
options = WorkingMemoryOptions(schema={"properties": {"name": {"type": "string"}}})
with Memory(URL, key_prefix=PREFIX, embeddings=model, recall=RecallOptions(), working_memory=options) as memory:
    memory.save_turn([HumanMessage("My dog is called Nougat.")], **IDS)
    memory.working_memory.update({"name": "Maya"}, **IDS)
    assert "Maya" in memory.context("What is my dog called?", **IDS).messages[-1].text
    assert "Nougat" in memory.recall.search("dog", **IDS)._repr_html_()
    assert memory.recall.reindex() == 0
    assert memory.chat_history("t").messages
    assert memory.as_retriever(**IDS).invoke("dog")
    (search,) = memory.tools(user_id="u", include=["search_memory"])  # in thread "t" it is in sight
    assert "Nougat" in search.invoke({"query": "dog"})
    graph: Any = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node()).add_node("save", memory.save_node())
    graph.add_edge(START, "load").add_edge("load", "save")
    graph.compile().invoke({"messages": [HumanMessage("And now?")]}, {"configurable": IDS})
    assert len(memory.history.messages("t")) == 2
    assert memory.doctor().level != "error"
    records = list(memory.users.export("u"))
    assert memory.users.delete("u").verified
    assert memory.users.load(records).messages == 2
    other = from_langchain({"s": messages_to_dict([HumanMessage("Hello.")])})
    assert memory.users.load(other, user_id="u").messages == 1

with RedisMemoryStore(URL, key_prefix=PREFIX, index={"dims": 8, "embed": model}) as store:
    store.put(("memories", "u"), "dog", {"text": "Nougat"})
    assert store.search(("memories",), query="dog", filter={"text": "Nougat"})
