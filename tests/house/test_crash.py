"""kill -9 of the server in the middle: what was acknowledged is there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import kill_server
from tests.helpers.embeddings import WordEmbeddings


def test_killing_the_server_costs_a_writer_nothing_but_time(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "data") as server, Memory(server.url) as memory:
        under_way = [threading.Event() for _ in range(2)]

        def write() -> None:
            for place in range(600):
                memory.history.append([HumanMessage(str(place))], thread_id="t", user_id="u")
                if place % 200 == 100 and place < 400:
                    under_way[place // 200].set()

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            for event in under_way:
                assert event.wait(30)
                kill_server(tmp_path / "data")
                server.start()
            writer.result()
        rows = memory.history.page("t", limit=1000).items
        assert [row.message.content for row in rows] == [str(place) for place in range(600)]
        assert [row.seq for row in rows] == list(range(600))


def test_indexes_and_vectors_come_back_with_the_server(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "data") as server:
        memory = Memory(server.url, embeddings=WordEmbeddings())
        texts = [f"message number {place} about topic{place % 7}" for place in range(300)]
        memory.history.append([HumanMessage(text) for text in texts], thread_id="t", user_id="u")
        before = memory.recall.search("topic3", user_id="u", top_k=40)
        kill_server(tmp_path / "data")
        server.start()
        after = memory.recall.search("topic3", user_id="u", top_k=40)
        assert [hit.message.id for hit in after] == [hit.message.id for hit in before]
        assert memory.recall.reindex(progress=False) == 0
        memory.close()
