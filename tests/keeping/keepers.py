"""Scripted keepers, and the memories that they keep."""

from __future__ import annotations

import json
import re
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.wings import Scripted, elements

_SAID = re.compile(r"(\w+) is (\w+)")
_LINE = re.compile(r"^\[v\d+\] (- \*\*(\w+)\*\*:.*)$", re.MULTILINE)
TEMPLATE = "# About\n- **city**:\n- **job**:\n- **pet**:\n"


class Person(BaseModel):
    city: str | None = None
    job: str | None = None
    pet: str | None = None
    languages: list[str] | None = None


class Setting(Scripted):
    """Keeps "city is Oslo" as the value of a schema, and "city is gone" as none."""

    def says(self, found: list[tuple[int, str, str]]) -> str:
        return json.dumps([one for number, _, text in found for one in self._operations(number, text)])

    def _operations(self, number: int, text: str) -> list[dict[str, Any]]:
        pairs = _SAID.findall(text)
        return [
            {"op": "remove", "path": f"/{name}", "messages": [number]}
            if value == "gone"
            else {"op": "set", "path": f"/{name}", "value": value, "messages": [number]}
            for name, value in pairs
        ]


class Filling(Scripted):
    """Keeps the same in the fields of a template."""

    document: str = ""

    def _generate(self, messages: Any, *more: Any, **options: Any) -> Any:
        self.document = str(messages[1].content)
        return super()._generate(messages, *more, **options)

    def says(self, found: list[tuple[int, str, str]]) -> str:
        lines = {name: line for line, name in _LINE.findall(self.document)}
        operations = []
        for number, _, text in found:
            for name, value in _SAID.findall(text):
                new = f"- **{name}**:" if value == "gone" else f"- **{name}**: {value}"
                operations.append({"find": lines[name], "replace": new, "messages": [number]})
                lines[name] = new
        return json.dumps(operations)


class Saying(Scripted):
    """Answers these texts in turn, and then []."""

    answers: list[str] = []
    prompts: list[list[Any]] = []

    def _generate(self, messages: Any, *more: Any, **options: Any) -> Any:
        self.prompts.append(messages)
        return super()._generate(messages, *more, **options)

    def says(self, found: list[tuple[int, str, str]]) -> str:
        return self.answers.pop(0) if self.answers else "[]"


def kept_by(keeper: Any, **options: Any) -> dict[str, Any]:
    """Return the options of a memory whose keeper works when it is called."""
    form = {} if "template" in options else {"schema": Person}
    return {"working_memory": WorkingMemoryOptions(keeper=keeper, **{**form, "background": False, **options})}


def say(memory: Memory, text: str, id: str, thread: str = "t", user: str = "u") -> None:
    """Store a turn."""
    turn = [HumanMessage(text, id=id), AIMessage("I see.", id=f"a{id}")]
    memory.history.append(turn, thread_id=thread, user_id=user)


def shown(memory: Memory, thread: str = "t", user: str = "u") -> str:
    """Return the document as a turn shows it."""
    found = memory.context("and now?", thread_id=thread, user_id=user).working_memory
    assert found is not None
    return found.text


__all__ = ["TEMPLATE", "Filling", "Person", "Saying", "Setting", "elements", "kept_by", "say", "shown"]
