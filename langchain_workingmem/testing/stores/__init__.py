"""What LangGraph's `BaseStore` promises, as pytest classes: subclass them and give them your store.

    class TestMyStore(StoreTests):
        @pytest.fixture
        def store(self):
            with MyStore() as store:
                yield store

`StoreTests` is for every store, `VectorStoreTests` for one with an index, `ExpiringStoreTests` for one with times to live.
Each has an async twin.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("batches", "expiry", "items", "namespaces", "searches", "vectors"))
)

from langchain_workingmem.testing.stores.suite import AsyncSuite, Suite  # noqa: E402, I001 - asserts are rewritten first
from langchain_workingmem.testing.stores.batches import BatchTests, ConcurrencyTests  # noqa: E402
from langchain_workingmem.testing.stores.expiry import ExpiringStoreTests  # noqa: E402
from langchain_workingmem.testing.stores.items import ItemTests, ValueTests  # noqa: E402
from langchain_workingmem.testing.stores.namespaces import NamespaceTests  # noqa: E402
from langchain_workingmem.testing.stores.searches import SearchTests  # noqa: E402
from langchain_workingmem.testing.stores.vectors import VectorStoreTests, WordVectors  # noqa: E402

__all__ = [
    "AsyncExpiringStoreTests",
    "AsyncStoreTests",
    "AsyncVectorStoreTests",
    "ExpiringStoreTests",
    "StoreTests",
    "VectorStoreTests",
    "WordVectors",
]


class StoreTests(ItemTests, ValueTests, BatchTests, NamespaceTests, SearchTests, ConcurrencyTests, Suite):
    """Items, values, batches, namespaces, search without vectors, concurrency: what every store does."""


class AsyncStoreTests(AsyncSuite, StoreTests):
    """The same, by the async methods of the store that `open_store` opens."""


class AsyncVectorStoreTests(AsyncSuite, VectorStoreTests):
    """`VectorStoreTests` by the async methods of the store that `open_store` opens."""


class AsyncExpiringStoreTests(AsyncSuite, ExpiringStoreTests):
    """`ExpiringStoreTests` by the async methods of the store that `open_store` opens."""
