"""A speaker's name is sent as providers accept it, and stored as it was given."""

from __future__ import annotations

from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from tests.faces.nodes_samples import Recording, chat, who
from tests.helpers.types import Invoke


def test_a_graph_that_loads_into_its_messages_saves_the_names_that_were_given(plain: Memory, invoke: Invoke) -> None:
    model = Recording()
    graph = chat(plain, model)
    said = [HumanMessage(text, name="Zoë Smith", id=text) for text in ("hello", "again")]
    for one in said:
        invoke(graph, {"messages": [one]}, who())
    assert [message.name for message in model.seen[1]] == ["Zoe_Smith", None, "Zoe_Smith"]
    assert plain.history.messages("t")[::2] == said
