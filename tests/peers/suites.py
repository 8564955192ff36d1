"""The suites of peers that run on our parts: one row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """Tests of a package in a repository; expected.toml has its expected failures under the same name."""

    name: str
    repository: str
    """Its environment has the packages of all suites of the repository."""
    folder: str
    """Where its pyproject.toml and its tests lie in the checkout."""
    words: tuple[str, ...] = ("tests",)
    """What pytest is given: which tests, and options."""
    plugin: str = "store_plugin"
    """What makes their tests use ours, a module in this folder."""
    package: str = ""
    """The package on the Python package index, whose version the checkout tells; "": as the suite is called."""

    @property
    def distribution(self) -> str:
        """Return the name of the package."""
        return self.package or self.name


# the smoke tests compare pictures of prompts, by an option that clashes with a plug-in of langchain-tests
DEEPAGENTS = ("tests/unit_tests", "--ignore=tests/unit_tests/smoke_tests")
# its conftest.py and its options are for tests of clients, and want packages of their own
MEMORY_TOOL = ("tests/lib/tools/memory_tools/test_filesystem.py", "--noconftest", "-o", "addopts=")

SUITES = (
    Suite("langgraph-checkpoint", "langgraph", "libs/checkpoint"),
    Suite("langgraph-checkpoint-postgres", "langgraph", "libs/checkpoint-postgres"),
    Suite("langgraph-checkpoint-sqlite", "langgraph", "libs/checkpoint-sqlite"),
    Suite("langgraph-prebuilt", "langgraph", "libs/prebuilt"),
    Suite("langgraph", "langgraph", "libs/langgraph"),
    Suite("deepagents", "deepagents", "libs/deepagents", DEEPAGENTS),
    Suite("deepagents-files", "deepagents", "libs/deepagents", DEEPAGENTS, "files_plugin", "deepagents"),
    Suite("anthropic-files", "anthropic-sdk-python", ".", MEMORY_TOOL, "files_plugin", "anthropic"),
)
