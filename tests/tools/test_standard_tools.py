"""LangChain's own tests for tools, on each of ours, with a template and with a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_workingmem import Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.tools.samples import Person


class _Tool:
    """What LangChain's classes ask for; the ids are bound, because those pass no config."""

    name: ClassVar[str] = "update_working_memory"
    example: ClassVar[dict[str, Any]] = {}
    options: ClassVar[dict[str, Any]] = {}
    built: ClassVar[BaseTool]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _build(cls, server: EmbeddedRedis) -> Iterator[None]:
        with Memory(
            server.url,
            embeddings=WordEmbeddings(),
            recall=RecallOptions(),
            working_memory=WorkingMemoryOptions(**cls.options),
            key_prefix=cls.__name__,
        ) as memory:
            memory.history.append([HumanMessage("my cat is Molly")], thread_id="t", user_id="ann")
            (cls.built,) = memory.tools(thread_id="t", user_id="ann", include=[cls.name])
            yield

    @property
    def tool_constructor(self) -> BaseTool:
        return self.built

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return self.example


class _Integration(_Tool, ToolsIntegrationTests):
    def test_the_example_is_no_error(self, tool: BaseTool) -> None:
        message = tool.invoke({"type": "tool_call", "id": "1", "name": tool.name, "args": self.example})
        assert message.status == "success"


class _UpdateTemplate(_Tool):
    example: ClassVar[dict[str, Any]] = {"memory": "# User information\n- **First name**: Ann"}


class TestUpdateTemplateUnit(_UpdateTemplate, ToolsUnitTests): ...


class TestUpdateTemplate(_UpdateTemplate, _Integration): ...


class _UpdatePydantic(_Tool):
    options: ClassVar[dict[str, Any]] = {"schema": Person}
    example: ClassVar[dict[str, Any]] = {"memory": {"name": "Ann", "home": {"city": "Ulm"}}}


class TestUpdatePydanticUnit(_UpdatePydantic, ToolsUnitTests): ...


class TestUpdatePydantic(_UpdatePydantic, _Integration): ...


class _Search(_Tool):
    name: ClassVar[str] = "search_memory"
    example: ClassVar[dict[str, Any]] = {"query": "cat"}


class TestSearchUnit(_Search, ToolsUnitTests): ...


class TestSearch(_Search, _Integration): ...
