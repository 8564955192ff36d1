"""What does each kind of memory cost in a turn, and after it? docs/what-it-costs.md shows and explains the table.

    python benchmarks/kinds.py

replays three threads of one user (`examples/conversations.json`) with each kind of memory in turn. The agent is a loop of context,
model and save_turn, as in docs/how-to/tools.md. All models are scripts. The agent calls the tool of working memory in those turns in
which the user says one of ten facts, and the keeper returns the same facts. What works after a turn is called
after each turn, as a worker would do it. Tokens are characters / 4.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from html import unescape
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, cast

import redis
from common import ELEMENT, Fifth, Recorder, environment, row
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, messages_from_dict
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from langchain_workingmem import LocalEmbeddings, Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.tools import BaseTool

USER, TOPICS = "maya", ("health", "home", "travel")
COLUMNS = (
    "round trips of a turn: mean, most",
    "after it",
    "calls of the agent's model",
    "calls of another model",
    "tokens that they read",
    "calls of the embedding model",
    "tokens of a prompt: mean, most",
    "facts kept",
)
THRESHOLDS = ("message_tokens", "keep_tokens", "batch_tokens", "observation_tokens")
SCALE = 30  # the thresholds of observations are so much lower than the defaults, because these threads are short


class Profile(BaseModel):
    """What an assistant wants to know of its user."""

    allergy: str | None = None
    pens: str | None = None
    pens_expire: str | None = None
    floor: str | None = None
    dog: str | None = None
    vet: str | None = None
    dog_sitter: str | None = None
    knee: str | None = None
    walking_limits: str | None = None
    trip: str | None = None


FACTS = {  # words of the message in which the user says it: the field, and the value
    "I'm allergic to shellfish": ("allergy", "shellfish: prawns, crab and lobster"),
    "two pens, and I have to carry both": ("pens", "two adrenaline pens, always both"),
    "They expire in March 2028": ("pens_expire", "March 2028"),
    "Third floor, no lift": ("floor", "third, no lift"),
    "And she's called Nougat": ("dog", "Nougat, a grey lurcher mix"),
    "Dr Ansorge is lovely": ("vet", "Dr Ansorge"),
    "She's going to sleep at my place": ("dog_sitter", "Greta, end of August"),
    "part of the meniscus": ("knee", "left meniscus, operated in February"),
    "at most 400 metres of descent": ("walking_limits", "400 m of descent and 12 km a day"),
    "Our flight is KD 1482": ("trip", "Dolomites, 29 August to 4 September"),
}


class Counted(LocalEmbeddings):
    """Counts the calls of the model of recall."""

    calls = 0

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        self.calls += 1
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.calls += 1
        return super().embed_documents([text])[0]


class Script(Fifth):
    """The observer, or the keeper; counts its calls, and the tokens that they read."""

    keeps: bool = False
    calls: int = 0
    read: int = 0

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        self.calls += 1
        self.read += sum(len(str(message.text)) for message in messages) // 4
        if not self.keeps:
            return super()._call(messages)
        operations = [
            {"op": "set", "path": f"/{name}", "value": value, "messages": [int(number)]}
            for _, number, _, text in ELEMENT.findall(str(messages[-1].text))
            for words, (name, value) in FACTS.items()
            if words in unescape(text)
        ]
        return json.dumps(operations)


def turns() -> Iterator[tuple[str, str, str]]:
    """Yield thread, question and answer of each turn, without tool traffic."""
    path = Path(__file__).parents[1] / "examples/conversations.json"
    threads = json.loads(path.read_text(encoding="utf-8"))["users"][USER]
    for thread in (one for one in threads if one["metadata"]["topic"] in TOPICS):
        question = answer = ""
        for one in messages_from_dict(thread["messages"]):
            if isinstance(one, HumanMessage):
                if question:
                    yield thread["thread_id"], question, answer
                question = str(one.text)
            elif isinstance(one, AIMessage) and one.text:
                answer = str(one.text)
        yield thread["thread_id"], question, answer


@dataclass
class Play:
    """What the turns of a user have cost with one kind of memory."""

    name: str
    memory: Memory
    sent: Recorder
    has_document: bool = False
    embeddings: Counted | None = None
    model: Script | None = None  # that works after a turn
    in_turn: list[int] = field(default_factory=list)  # round trips
    after: list[int] = field(default_factory=list)
    model_calls: int = 0
    tokens: list[int] = field(default_factory=list)  # that memory adds to the first prompt of a turn

    def warm_up(self) -> None:
        """Let the server know the scripts and the indexes, and count nothing of it."""
        for question in list(FACTS)[:3]:
            self.turn("warm-up", question, "Hello!", "nobody")
        self.in_turn, self.after, self.tokens, self.model_calls = [], [], [], 0
        if self.embeddings:
            self.embeddings.calls = 0
        if self.model:
            self.model.calls = self.model.read = 0

    def turn(self, thread_id: str, question: str, answer: str, user: str = USER) -> None:
        ids: Any = {"thread_id": thread_id, "resource_id": user}
        before = len(self.sent.trips)
        tools = self.memory.tools(**ids)
        said = dict(FACTS[words] for words in FACTS if words in question)
        turn: list[BaseMessage] = [HumanMessage(question)]
        shown = self.memory.context(turn, **ids).messages
        self.tokens.append(tokens_of(shown, tools) - len(question) // 4)
        self.model_calls += 1
        updating = [tool for tool in tools if said and tool.name == "update_working_memory"]
        for tool in updating:
            call = ToolCall(name=tool.name, args={"memory": said}, id=f"call-{question}", type="tool_call")
            turn += [AIMessage("", tool_calls=[call]), tool.invoke(call)]
            self.memory.context(turn, **ids)
            self.model_calls += 1
        self.memory.save_turn([*turn, AIMessage(answer)], **ids)
        self.in_turn.append(len(self.sent.trips) - before)
        before = len(self.sent.trips)
        self.memory.settled()
        self.after.append(len(self.sent.trips) - before)

    def cells(self) -> list[object]:
        trips = f"{mean(self.in_turn):.1f}, {max(self.in_turn)}"
        after = f"{mean(self.after):.1f}, {max(self.after)}"
        embedded = self.embeddings.calls if self.embeddings else 0
        read = f"{self.model.read:,}" if self.model else "0"
        tokens = f"{mean(self.tokens):,.0f}, {max(self.tokens):,}"
        calls = self.model.calls if self.model else 0
        return [self.name, trips, after, self.model_calls, calls, read, embedded, tokens, self.facts()]

    def facts(self) -> str:
        """Count the facts that stand in the document at the end."""
        if not self.has_document:
            return ""
        known = self.memory.working_memory.get(resource_id=USER).value or Profile()
        return str(len(known.model_dump(exclude_none=True)))


def tokens_of(messages: Sequence[BaseMessage], tools: Sequence[BaseTool]) -> int:
    """Estimate what a model reads: the messages, and the descriptions of tools."""
    described = sum(len(json.dumps(convert_to_openai_tool(tool))) for tool in tools)
    return (sum(len(str(message.text)) for message in messages) + described) // 4


def plays(url: str) -> Iterator[Play]:
    """Make a memory of each kind."""
    made = 0

    def memory(**options: Any) -> tuple[Memory, Recorder]:
        nonlocal made
        made += 1
        sent = Recorder(redis.Redis.from_url(url))
        return Memory(client=cast("redis.Redis", sent), key_prefix=f"kind{made}", **options), sent

    def observing(model: Script) -> ObservationOptions:
        sizes = {name: getattr(ObservationOptions(model=model), name) // SCALE for name in THRESHOLDS}
        return ObservationOptions(model=model, **sizes)

    yield Play("history", *memory())
    embeddings = Counted()
    yield Play("recall", *memory(embeddings=embeddings), embeddings=embeddings)
    yield Play(
        "working memory, by a tool", *memory(working_memory=WorkingMemoryOptions(schema=Profile)), has_document=True
    )
    keeper = Script(keeps=True)
    yield Play("a model keeps it", *memory(working_memory=keeping(keeper)), has_document=True, model=keeper)
    keeper = Script(keeps=True)
    waits = keeping(keeper, keep_after=300)
    yield Play("a model keeps it, `keep_after=300`", *memory(working_memory=waits), has_document=True, model=keeper)
    observer = Script()
    yield Play("observations", *memory(observations=observing(observer)), model=observer)


def keeping(keeper: Script, **options: Any) -> WorkingMemoryOptions:
    return WorkingMemoryOptions(schema=Profile, keeper=keeper, **options)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, help="only so many")
    chosen = parser.parse_args()
    with EmbeddedRedis() as server:
        print(environment(server.url))
        print(row("kind", *COLUMNS))
        print(row("---", *["--:"] * len(COLUMNS)))
        for play in plays(server.url):
            play.memory.setup()
            play.warm_up()
            for thread_id, question, answer in islice(turns(), chosen.turns):
                play.turn(thread_id, question, answer)
            print(row(*play.cells()))
            play.memory.close()


if __name__ == "__main__":
    main()
