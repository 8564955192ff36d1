"""The suite finds what a store does wrong, and says what a subclass does wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_workingmem.testing.stores import StoreTests, VectorStoreTests
from langchain_workingmem.testing.stores.suite import Suite

SUBCLASSES = """
import pytest
from langgraph.store.memory import InMemoryStore
from langchain_workingmem.testing.stores import AsyncStoreTests, StoreTests

class Given(StoreTests):
    @pytest.fixture
    def store(self):
        return InMemoryStore()

class TestWrongName(Given):
    expected_failures = {"test_no_such_thing": "wrong"}

class TestHealed(Given):
    expected_failures = {"test_a_deleted_item_is_gone": "it was so once"}

class TestOneCase(Given):
    expected_failures = {"test_a_filter_compares_fields[text]": "it was so once"}

class TestNoStore(StoreTests):
    pass

class TestNothingToOpen(AsyncStoreTests):
    pass
"""


class Faulty(InMemoryStore):
    """Does one thing wrong."""

    def __init__(self, fault: str, **options: Any) -> None:
        super().__init__(**options)
        self._fault = fault

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        match self._fault:
            case "loses puts":
                ops = [GetOp(op.namespace, op.key) if isinstance(op, PutOp) and op.key == "7" else op for op in ops]
            case "ignores filters":
                ops = [op._replace(filter=None) if isinstance(op, SearchOp) else op for op in ops]
            case "ignores offsets":
                ops = [op._replace(offset=0) if isinstance(op, SearchOp | ListNamespacesOp) else op for op in ops]
            case "ignores index":
                ops = [op._replace(index=None) if isinstance(op, PutOp) else op for op in ops]
            case "stores text" if any(isinstance(op, PutOp) and op.value for op in ops):
                ops = [
                    op._replace(value={name: str(each) for name, each in op.value.items()})
                    if isinstance(op, PutOp) and op.value
                    else op
                    for op in ops
                ]
            case "turns results round":
                return super().batch(ops)[::-1]
            case "first put wins":
                ops = ops[::-1]
        return super().batch(ops)


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("loses puts", "test_puts_of_different_keys_at_once_lose_nothing"),
        ("loses puts", "test_a_large_batch_is_done_whole"),
        ("ignores filters", "test_a_filter_is_data_and_no_code"),
        ("ignores filters", "test_an_update_is_found_by_its_new_fields_only"),
        ("ignores offsets", "test_pages_put_together_are_the_whole"),
        ("ignores offsets", "test_pages_of_namespaces_are_the_whole"),
        ("stores text", "test_many_fields_come_back_as_they_were"),
        ("turns results round", "test_results_come_in_the_order_of_the_operations"),
        ("first put wins", "test_of_several_puts_to_an_item_the_last_wins"),
        ("first put wins", "test_of_a_put_and_a_delete_of_an_item_the_last_wins"),
    ],
)
def test_a_fault_is_found(fault: str, test: str) -> None:
    run = getattr(StoreTests(), test)
    more = (None,) if test == "test_pages_put_together_are_the_whole" else ()
    run(InMemoryStore(), *more)
    with pytest.raises((AssertionError, AttributeError)):
        run(Faulty(fault), *more)


def test_no_test_hides_another_one() -> None:
    parts = [part for part in StoreTests.__mro__ if part.__module__.startswith(Suite.__module__.rpartition(".")[0])]
    names = [name for part in parts for name in vars(part) if name.startswith("test_")]
    assert len(names) == len(set(names)) == len([name for name in dir(StoreTests) if name.startswith("test_")])


def test_a_fault_of_vectors_is_found() -> None:
    suite = VectorStoreTests()
    suite.test_an_item_that_is_not_indexed_has_no_score(InMemoryStore(index=suite.index))
    with pytest.raises(AssertionError):
        suite.test_an_item_that_is_not_indexed_has_no_score(Faulty("ignores index", index=suite.index))


def test_a_store_without_operators_need_not_refuse_any() -> None:
    suite = StoreTests()
    suite.filter_operators = False  # type: ignore[misc]
    with pytest.raises(pytest.skip.Exception):
        suite.test_an_unknown_operator_is_refused(Faulty("ignores filters"))


def test_a_subclass_that_is_wrong_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUBCLASSES)
    (tmp_path / "pytest.ini").touch()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "test_a_deleted_item_is_gone or text",
        "-p",
        "no:cacheprovider",
    ]
    unused = [
        word
        for name in ("benchmark", "codspeed", "langsmith_plugin", "syrupy", "xdist")
        for word in ("-p", f"no:{name}")
    ]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*command, *unused], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert "expected_failures names test_no_such_thing, which is no test of TestWrongName" in done.stdout
    assert "FAILED test_it.py::TestHealed::test_a_deleted_item_is_gone" in done.stdout
    assert "FAILED test_it.py::TestOneCase::test_a_filter_compares_fields[text]" in done.stdout
    assert "FAILED test_it.py::TestOneCase::test_a_deleted_item_is_gone" not in done.stdout
    assert "TestNoStore needs a fixture `store`" in done.stdout
    assert "TestNothingToOpen needs a method `open_store`" in done.stdout
