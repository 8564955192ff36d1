"""Observers and reflectors that play a part: good, lazy, or bad in one of many ways; they note what each call was shown."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field

CANARY = re.compile(r"zq\d+x")  # the word of one message
TOKEN = re.compile(r"k\d+n\d+e|pp\d+x")  # the word of one observation: of a model, of a person
INSTRUCTIONS = "Mind the marmalade."  # stands in the system role, and nowhere else
ENDLESS = 300  # calls between two checks
WRONG = "wrongline"  # stands in each answer that must not be committed
MARKUP = " <b>&amp;</b> </observations>"

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
MESSAGE = re.compile(rf'<message n="(\d+)" role="(?:user|assistant|tool)" time="{_TIME}">(.*?)</message>', re.DOTALL)
OBSERVATION = re.compile(
    rf'<observation n="(\d+)" time="{_TIME}" priority="(?:high|normal|low)">(.*?)</observation>', re.DOTALL
)


@dataclass
class Call:
    """One call of the model: what it was shown, what it answered, and what was wrong with the prompt."""

    kind: Literal["observe", "reflect"]
    part: str  # what the model played
    is_good: bool
    shown: dict[int, str]  # number -> text of the element
    outside: str  # the rest of the human message
    lines: list[tuple[tuple[int, ...], str]] = field(default_factory=list)  # of a good answer
    problems: list[str] = field(default_factory=list)

    @property
    def canaries(self) -> set[str]:
        return {canary for text in self.shown.values() for canary in CANARY.findall(text)}


@dataclass
class Gate:
    """Holds a call of the model until somebody lets it go on."""

    entered: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


def _bad(text: str, **metadata: Any) -> Callable[[int], AIMessage]:
    return lambda count: AIMessage(text.replace("COUNT", str(count)), response_metadata=metadata)


BAD: dict[str, Callable[[int], AIMessage]] = {
    "empty": _bad(""),
    "blank": _bad(" \n\n "),
    "garbage": _bad(f"{WRONG}, turtles and so on.\nNothing of this is a line."),
    "refusing": _bad(f"I'm sorry, but I can't help with that {WRONG}."),
    "too long": _bad("2026-11-20\n- [1] " + " ".join(f"{WRONG}{at}" for at in range(15_000))),
    "repeating": _bad("2026-11-20\n" + f"- [1] {WRONG} again\n" * 80),
    "citing nothing": _bad(f"2026-11-20\n- [1] {WRONG} one\n- {WRONG} two\n- [] {WRONG} three"),
    "citing what it was not given": _bad(f"2026-11-20\n! [1] {WRONG} one\n- [1,COUNT0] {WRONG} two"),
    "citing zero": _bad(f"2026-11-20\n- [0] {WRONG} one"),
    "cut off": _bad(f"2026-11-20\n- [1] {WRONG} one", finish_reason="length"),
    "cut off (Anthropic)": _bad(f"2026-11-20\n- [1] {WRONG} one", stop_reason="max_tokens"),
    "filtered": _bad(f"2026-11-20\n- [1] {WRONG} one", finish_reason="content_filter"),
}
RAISING = ("raising", "flaky", "slow")
GOOD = ("good", "in other clothes")  # cite each message that they were given, each in one line
LOOSE = ("lazy", "overlapping")  # leave some out; cite some in two lines
PARTS = (*BAD, *RAISING)


class Observer(BaseChatModel):
    """Plays `part`. A part "once ..." is bad in the first call, and good from then on."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    part: str = "good"
    calls: list[Call] = Field(default_factory=list)
    gate: Gate | None = None
    hurry: threading.Event = Field(default_factory=threading.Event)  # ends the slow calls
    hot: set[int] = Field(default_factory=set)  # threads that are inside `context` or `save_turn`
    told: dict[str, set[str]] = Field(default_factory=dict)  # the word of a line -> the messages that it tells of
    has_low: bool = True  # whether it writes low lines
    faded: set[str] = Field(
        default_factory=set
    )  # messages that low lines tell of: a log that is too long leaves these out
    lock: Any = Field(default_factory=threading.Lock, exclude=True)
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "observer"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        with self.lock:
            self.asked += 1
            number, part = self.asked, self.part
            if part.startswith("once "):
                self.part, part = "good", part.removeprefix("once ")
            elif part == "flaky":
                part = "raising" if number % 2 else "good"
            call = _read(messages, part)
            if threading.get_ident() in self.hot:
                call.problems.append("the model is asked by the thread that serves the turn")
            self.calls.append(call)
            if len(self.calls) > ENDLESS:
                call.problems.append("the model is asked without end")
                call.is_good = False
        if len(self.calls) > ENDLESS:
            raise ConnectionError("the provider is tired")
        answer = self._answer(call, number)
        if (gate := self.gate) is not None:
            gate.entered.set()
            gate.released.wait(10)
        if part == "slow":
            self.hurry.wait(5)
        if part == "raising":
            raise ConnectionError("the provider is down")
        answer.usage_metadata = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, call: Call, number: int) -> AIMessage:
        if call.part in BAD:
            return BAD[call.part](len(call.shown))
        groups = _groups(sorted(call.shown), 3 if call.kind == "observe" else 4)
        if call.part == "lazy":
            groups = groups[:1] + groups[2::2]
        if call.part == "overlapping":
            groups = [(*one, other[0]) for one, other in zip(groups, [*groups[1:], groups[0]], strict=True)]
            groups = [tuple(sorted(set(one))) for one in groups]
        texts = []
        for at, group in enumerate(groups):
            words = [CANARY.findall(call.shown[one]) for one in group]
            named = [found[0] for found in words if found][: 3 if call.kind == "observe" else 1]
            text = f"k{number}n{at}e {' '.join(named)}{MARKUP if (number + at) % 9 == 0 else ''}"
            call.lines.append((group, text))
            texts.append((group, text))
        is_dressed = call.part == "in other clothes"
        for at, (group, text) in enumerate(texts):
            told: set[str] = set()
            for one in group:
                shown = call.shown[one]
                told.update(CANARY.findall(shown) if call.kind == "observe" else ())
                told.update(*(self.told.get(token, set()) for token in TOKEN.findall(shown)))
            self.told[TOKEN.findall(text)[0]] = told
            if at % 3 == 2 and self.has_low and not is_dressed:
                self.faded |= told
        signs = "!-~" if self.has_low else "!--"
        return AIMessage(_written(texts, signs, dressed=is_dressed))


def _groups(numbers: list[int], most: int) -> list[tuple[int, ...]]:
    """Cut numbers into groups, a little unevenly."""
    found: list[tuple[int, ...]] = []
    at = 0
    while at < len(numbers):
        size = 1 + (at * 7 + len(numbers)) % most if most == 3 else most
        found.append(tuple(numbers[at : at + size]))
        at += size
    return found


def _written(lines: list[tuple[tuple[int, ...], str]], signs: str, *, dressed: bool) -> str:
    """Write lines."""
    if not dressed:
        return "\n".join(
            [
                "2026-11-20",
                *(f"{signs[at % 3]} [{','.join(map(str, n))}] {text}" for at, (n, text) in enumerate(lines)),
            ]
        )
    body = [f"* [{n[0]}-{n[-1]}] {text}" if len(n) > 1 else f"- [{n[0]}] {text}" for n, text in lines]
    return "\n".join(["<think>- [1] hm</think>", "Here are the notes:", "```", "## 2026-11-20", "", *body, "```"])


def _read(messages: list[BaseMessage], part: str) -> Call:
    """Read a prompt, and note what the contract does not allow."""
    problems = []
    human = [message for message in messages if isinstance(message, HumanMessage)]
    text = str(human[0].text) if human else ""
    kind: Literal["observe", "reflect"] = "reflect" if "<observation n=" in text else "observe"
    pattern = OBSERVATION if kind == "reflect" else MESSAGE
    found = pattern.findall(text)
    shown = {int(number): body for number, body in found}
    if [int(number) for number, _ in found] != list(range(1, len(found) + 1)) or not found:
        problems.append(f"the elements are numbered {[number for number, _ in found]}")
    problems += [f"not escaped: {body[:200]!r}" for body in shown.values() if "<" in body or ">" in body]
    if [m.type for m in messages[:2]] != ["system", "human"] or any(
        isinstance(message, SystemMessage) for message in messages[1:]
    ):
        problems.append(f"the roles are {[m.type for m in messages]}")
    system = str(messages[0].text)
    if INSTRUCTIONS not in system:
        problems.append("the instructions are not in the system message")
    if any(INSTRUCTIONS in str(message.text) for message in messages[1:]):
        problems.append("the instructions stand outside the system message")
    if CANARY.search(system) or TOKEN.search(system):
        problems.append(f"the system message has words of a conversation: {system[-300:]!r}")
    if kind == "observe":
        many = [body[:80] for body in shown.values() if len(set(CANARY.findall(html.unescape(body)))) != 1]
        problems += [f"an element is not one message: {body!r}" for body in many]
    is_good = part in GOOD or part in LOOSE
    return Call(kind=kind, part=part, is_good=is_good, shown=shown, outside=pattern.sub("", text), problems=problems)
