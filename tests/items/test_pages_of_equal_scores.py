"""Pages of a search by vector, where many items are equally near: each item comes once."""

from __future__ import annotations

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings


def test_pages_of_equal_scores_hold_each_item_once(server: EmbeddedRedis, prefix: str) -> None:
    index = {"dims": len(WordEmbeddings().embed_query("x")), "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]}
    with RedisMemoryStore.from_conn_string(server.url, index=index, key_prefix=prefix) as store:  # type: ignore[arg-type]
        store.setup()
        for at in range(30):
            store.put(("a", "b"), f"k{at}", {"text": f"dog {at}" if at % 2 else f"tax {at}", "tags": ["x", "y"]})
        pages = [store.search(("a",), query="dog", limit=7, offset=offset) for offset in range(0, 40, 7)]
        keys = [item.key for page in pages for item in page]
        assert (len(keys), len(set(keys))) == (30, 30)
