"""Observers and reflectors that play a part, and note what each call was shown, and what of it breaks the contract."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field

from langchain_workingmem import ObservationOptions
from langchain_workingmem._text.sending import MARK, without_block

CANARY = re.compile(r"zq\d+x")  # the word of one message
INSTRUCTIONS = "Mind the marmalade."  # stands in the system role, and nowhere else
WRONG = "wrongline"  # stands in each answer that must not be committed
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
MESSAGE = re.compile(rf'<message n="(\d+)" role="(?:user|assistant|tool)" time="{_TIME}">(.*?)</message>', re.DOTALL)
OBSERVATION = re.compile(
    rf'<observation n="(\d+)" time="{_TIME}" priority="(?:high|normal|low)">(.*?)</observation>', re.DOTALL
)
ENDLESS = 200  # calls of one observer


@dataclass
class Call:
    """What a call was shown."""

    shown: dict[int, str]  # number -> text of the element
    is_reflecting: bool
    whole: str
    part: str
    problems: list[str] = field(default_factory=list)

    @property
    def canaries(self) -> list[str]:
        return CANARY.findall(" ".join(self.shown.values()))


BAD: dict[str, AIMessage] = {
    "empty": AIMessage(""),
    "garbage": AIMessage(f"{WRONG}, turtles and so on.\nNothing of this is a line."),
    "too long": AIMessage("2026-11-20\n- [1] " + " ".join(f"{WRONG}{at}" for at in range(15_000))),
    "repeating": AIMessage("2026-11-20\n" + f"- [1] {WRONG} again\n" * 80),
    "citing nothing": AIMessage(f"2026-11-20\n- [1] {WRONG} one\n- {WRONG} two"),
    "citing what it was not given": AIMessage(f"! [1] {WRONG} one\n- [1,4000] {WRONG} two"),
    "cut off": AIMessage(f"- [1] {WRONG} one", response_metadata={"finish_reason": "length"}),
    "cut off (Anthropic)": AIMessage(f"- [1] {WRONG} one", response_metadata={"stop_reason": "max_tokens"}),
    "filtered": AIMessage(f"- [1] {WRONG} one", response_metadata={"finish_reason": "content_filter"}),
}
GOOD = ("good", "lazy", "overlapping", "in other clothes")
PARTS = (*GOOD, *GOOD, *GOOD, *BAD, "raising", "flaky")


class Observer(BaseChatModel):
    """Plays its part; what `during` does happens while it thinks."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    part: str = "good"
    calls: list[Call] = Field(default_factory=list)
    during: Callable[[Call], None] | None = None
    poison: str = ""  # a word of messages that it cannot read
    size: int = 3  # elements of a line at most
    lock: Any = Field(default_factory=threading.Lock, exclude=True)

    @property
    def _llm_type(self) -> str:
        return "observer"

    @property
    def observed(self) -> list[Call]:
        return [call for call in self.calls if not call.is_reflecting]

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        with self.lock:
            call = read_call(messages, self.part)
            self.calls.append(call)
            number = len(self.calls)
        if number > ENDLESS:
            call.problems.append("the model is asked without end")
            raise ConnectionError("the provider is tired")
        if (during := self.during) is not None:
            during(call)
        if call.part == "raising" or (call.part == "flaky" and number % 2):
            raise ConnectionError("the provider is down")
        if self.poison and self.poison in call.whole:
            return _result(AIMessage(WRONG))
        return _result(BAD[call.part] if call.part in BAD else self.answer(call, number))

    def answer(self, call: Call, number: int) -> AIMessage:
        """Write lines about what was shown, with the words of its messages."""
        numbers = sorted(call.shown)
        size = 5 if call.is_reflecting else self.size
        groups = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        if call.part == "lazy":
            groups = groups[::2]
        if call.part == "overlapping":
            groups = [[*one, other[0]] for one, other in zip(groups, [*groups[1:], groups[0]], strict=True)]
            groups += [groups[0]]
        lines = []
        for at, group in enumerate(groups):
            words = [*dict.fromkeys(CANARY.findall(" ".join(call.shown[one] for one in group)))][:4]
            cited = ",".join(map(str, sorted({*group})))
            lines.append(f"{'!-~'[at % 3]} [{cited}] k{number}n{at}e {' '.join(words)} <b>&amp;</b></observations>")
        if call.part == "in other clothes":
            lines = [f"{at}. {line[2:]}" for at, line in enumerate(lines, 1)]
            return AIMessage(
                "<think>- [1] hm</think>\nHere they are:\n```\n## 2026-11-20\n" + "\n".join(lines) + "\n```"
            )
        return AIMessage("\n".join(["2026-11-20", *lines]))


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message.model_copy(deep=True))])


def read_call(messages: list[BaseMessage], part: str = "") -> Call:
    """Read a prompt, and note what the contract does not allow."""
    text = str(messages[1].text)
    is_reflecting = "<observation n=" in text
    found = (OBSERVATION if is_reflecting else MESSAGE).findall(text)
    shown = {int(number): html.unescape(body) for number, body in found}
    problems = [f"markup in an element: {body!r}" for _, body in found if re.search("[<>]", body)]
    if [int(number) for number, _ in found] != [*range(1, len(found) + 1)] or not found:
        problems.append(f"elements are numbered {[number for number, _ in found]}")
    if text.count("<message n=") + text.count("<observation n=") != len(found):
        problems.append(f"an element has another form: {text[:300]}")
    if [one.type for one in messages[:2]] != ["system", "human"] or any(one.type == "system" for one in messages[1:]):
        problems.append(f"roles are {[one.type for one in messages]}")
    if INSTRUCTIONS not in str(messages[0].text) or any(INSTRUCTIONS in str(one.text) for one in messages[1:]):
        problems.append("instructions stand in the system role, and nowhere else")
    if CANARY.search(str(messages[0].text)):
        problems.append("the system message has words of a conversation")
    if not is_reflecting and any(len({*CANARY.findall(body)}) > 1 for body in shown.values()):
        problems.append(f"an element is more than one message: {shown}")
    return Call(shown, is_reflecting, " ".join(str(one.text) for one in messages[1:]), part, problems)


def observing(model: BaseChatModel, **options: Any) -> ObservationOptions:
    """Return options under which a few short messages are a long conversation."""
    small = {"message_tokens": 120, "keep_tokens": 20, "batch_tokens": 60, "observation_tokens": 400}
    given: Any = {**small, "instructions": INSTRUCTIONS, "background": False, **options}
    return ObservationOptions(model=model, **given)


def words(number: int, count: int = 8) -> str:
    """Return the text of a message: its canary, and so many words."""
    return f"zq{number}x " + "word " * count


def turn(number: int, count: int = 8) -> list[BaseMessage]:
    """Return a question and its answer."""
    return [
        HumanMessage(words(2 * number, count), id=f"m{2 * number}"),
        AIMessage(words(2 * number + 1, count), id=f"m{2 * number + 1}"),
    ]


def front_of(message: BaseMessage) -> str:
    """Return what memory has put in front of the words of a message, or all that it has inserted."""
    mark = message.additional_kwargs.get(MARK) or {}
    whole = str(message.text)
    return whole if mark.get("inserted") else whole.removesuffix(str(without_block(message).text))
