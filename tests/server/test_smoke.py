from langchain_core.messages import HumanMessage
def test_it(memory, trips):
    m=[HumanMessage("hello dear world", id="1")]
    assert trips.of(lambda: memory.history.append(m, thread_id="t", resource_id="u"))==1
    assert trips.of(lambda: memory.history.messages("t", last=5))==1
    assert trips.of(lambda: memory.recall.search("world", resource_id="u"))==2
    assert trips.of(lambda: memory.context("world", thread_id="b", resource_id="u"))==2
    assert memory.recall.search("world", resource_id="u").hits[0].message==m[0]
