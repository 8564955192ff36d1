"""The suites of peers that run on our parts: one row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suite:
    """Tests of a package in a repository; expected.toml has its expected failures under the same name."""

    name: str
    """The package on the Python package index, whose version the checkout tells."""
    repository: str
    """Its environment has the packages of all suites of the repository."""
    folder: str
    """Where its pyproject.toml and its tests lie in the checkout."""
    paths: tuple[str, ...] = ("tests",)
    """What pytest is given."""
    plugin: str = "peer_plugin"
    """What makes their tests use ours, a module in this folder."""


SUITES = (
    Suite("langgraph-checkpoint", "langgraph", "libs/checkpoint"),
    Suite("langgraph-checkpoint-postgres", "langgraph", "libs/checkpoint-postgres"),
    Suite("langgraph-checkpoint-sqlite", "langgraph", "libs/checkpoint-sqlite"),
    Suite("langgraph-prebuilt", "langgraph", "libs/prebuilt"),
    Suite("langgraph", "langgraph", "libs/langgraph"),
    # the smoke tests compare pictures of prompts, by an option that clashes with a plug-in of langchain-tests
    Suite(
        "deepagents",
        "deepagents",
        "libs/deepagents",
        ("tests/unit_tests", "--ignore=tests/unit_tests/smoke_tests"),
    ),
)
