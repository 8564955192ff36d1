"""Scripted observers: chat models that read what an observer is given, and answer lines."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.options import Scope
from tests.helpers.archives import unsealed

_ELEMENT = re.compile(r'<(message|observation) n="(\d+)"[^>]*>(.*?)</\1>', re.DOTALL)


def elements(messages: list[BaseMessage]) -> list[tuple[str, int, str]]:
    """Return what an observer or a reflector is given: kind, number and text of each element."""
    text = str(messages[1].content)
    return [(kind, int(number), unescape(inner)) for kind, number, inner in _ELEMENT.findall(text)]


class Echo(BaseChatModel):
    """Answers a line for each `together` elements, which cites them and repeats the beginning of their words.

    It condenses observations to a third: two in one line.
    """

    together: int = 1
    characters: int = 200  # of each text
    calls: int = 0
    failure: Any = None  # an error that is raised instead

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        found = elements(messages)
        is_log = bool(found) and found[0][0] == "observation"
        together, most = (max(self.together, 2), self.characters // 3) if is_log else (self.together, self.characters)
        lines = []
        for start in range(0, len(found), together):
            _, numbers, texts = zip(*found[start : start + together], strict=True)
            words = " and ".join(" ".join(text.split())[:most] for text in texts)
            lines.append(f"- [{','.join(map(str, numbers))}] {words}")
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])


def observing(scope: Scope) -> dict[str, Any]:
    """Return the options of a memory whose threads expire, and that observes at once what is not the present turn."""
    options = ObservationOptions(model=Echo(together=2), scope=scope, message_tokens=10, keep_tokens=0)
    return {"observations": options, "ttl": timedelta(days=1)}


def live(memory: Memory, scope: Scope, thread: str, user: str, *, searches: bool = True) -> None:
    """Go through all that can happen to a log; `searches`: with what needs the indexes."""
    ids: Any = {"thread_id": thread, "user_id": user}
    other, copy = f"{thread} other", f"{thread} copy"
    for name in (thread, other):
        for at in range(0, 12, 2):
            said = [HumanMessage(f"word {at} of {name}", id=f"m{at}"), AIMessage(f"noted {at}", id=f"m{at + 1}")]
            memory.save_turn(said, thread_id=name, user_id=user)
        memory.observations.observe(name, user_id=user)
    log = memory.observations.get(**ids)
    assert len({source for one in log for source in one.sources}) >= (20 if scope == "user" else 10)
    first = log.observations[0].id
    assert memory.observations.sources(first, **ids).hits
    memory.observations.delete(first, **ids)
    memory.observations.clear(**ids)
    memory.observations.observe(**ids)
    assert memory.context([HumanMessage("and now?")], **ids).observations
    memory.history.update([HumanMessage("edited", id="m2")], **ids)
    memory.history.delete(["m4"], **ids)
    memory.history.truncate(after="m7", **ids)
    assert memory.observations.observe(**ids)
    memory.threads.clone(thread, new_thread_id=copy, user_id=user)
    memory.threads.transfer(other, user_id=user, to=f"{user} heir")
    memory.observations.observe(other, user_id=f"{user} heir")
    if searches:
        records = unsealed(memory.users.export(user))
        assert memory.users.delete(user).verified
        assert memory.users.load(records).observations
    assert memory.observations.get(**ids)
    memory.history.clear(**ids)
    memory.threads.delete(copy)
    model: Any = memory._core.state.observations
    model.model.failure = ConnectionError("gone")
    memory.save_turn([HumanMessage("one more"), AIMessage("yes")], **ids)
    memory.save_turn([HumanMessage("and more"), AIMessage("yes")], **ids)
    assert memory.observations.observe(**ids).usage.failures
    model.model.failure = None
