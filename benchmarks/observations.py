"""What observations do to the contexts of long conversations, and what they cost; docs/benchmarks.md shows figures.

    python benchmarks/observations.py locomo.json.gz beam.json.gz --out benchmarks/figures/observations.json

replays public conversations, in the form that `recall_quality.py` reads. All threads of a user are replayed as one. For each
message of the user a context is assembled, as the model would be sent it, and then the turn is saved. Tokens are characters / 4.
The observer is a script that keeps each fifth word; with `--model openai:gpt-5-mini` it is that model. Then the last columns
say how much it compresses, and which share of the messages with evidence for the questions of the data set is cited by an
observation, of those that are observed. The script cites all of them.

Without data, only the cost of a turn is measured: contexts and saves with a log of 40,000 tokens beside those without one,
in one run, in random order. Both show the same number of messages as they are.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import redis
from common import (
    BATCH,
    LOG_TOKENS,
    NEVER,
    SEMANTIC,
    Case,
    Fifth,
    Recorder,
    Slices,
    Words,
    alternate,
    environment,
    row,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from prefix import common_prefix, written
from tqdm import tqdm

from langchain_workingmem import HistoryOptions, LocalEmbeddings, Memory, ObservationOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common import Pair
    from langchain_core.language_models import BaseChatModel

MESSAGE_TOKENS = 30_000  # the default; the others are in proportion to it
POINTS = 40  # of a curve
SETTINGS = ("the last 10", "everything", "observations")


# ---------------------------------------------------------------------- contexts of conversations


@dataclass
class Conversation:
    """All that a user said, as one thread."""

    user: str
    messages: list[BaseMessage] = field(default_factory=list)
    evidence: list[str] = field(
        default_factory=list
    )  # ids of messages; what several questions need stands here so often

    @property
    def tokens(self) -> int:
        return sum(len(str(message.text)) for message in self.messages) // 4


def conversations(path: Path) -> Iterator[Conversation]:
    """Read a data set. Of a chat between two persons the first speaker stands for the user."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for item in json.loads(text)["items"]:
        found = Conversation(item["conversation"]["user"])
        for thread in item["conversation"]["threads"]:
            first = thread["messages"][0]["speaker"] if thread["messages"] else None
            for one in thread["messages"]:
                role = one.get("role")
                is_users = role in {"user", "human"} if role else one["speaker"] == first
                found.messages.append((HumanMessage if is_users else AIMessage)(one["text"], id=one["id"]))
        for question in item["questions"]:
            if question["category"] != "adversarial":
                found.evidence += question["evidence_message_ids"]
        yield found


def observing(model: BaseChatModel | str, message_tokens: int) -> ObservationOptions:
    return ObservationOptions(
        model=model,
        message_tokens=message_tokens,
        keep_tokens=message_tokens // 5,
        batch_tokens=message_tokens // 3,
        observation_tokens=message_tokens * 4 // 3,
        background=False,  # the replay observes when it is due
    )


@dataclass
class Replay:
    """What the contexts of conversations held, with one setting."""

    memory: Memory
    message_tokens: int
    points: list[tuple[int, int]] = field(default_factory=list)  # tokens of the conversation so far, of the context
    total: int = 0  # characters of all contexts but the first of each conversation
    shared: int = 0  # of them, a prefix of the context before
    observed: int = 0  # tokens of messages
    noted: int = 0  # tokens of their observations
    calls: int = 0
    gold: int = 0
    cited: int = 0

    @property
    def observes(self) -> bool:
        return self.memory._core.state.observations is not None

    def run(self, conversation: Conversation) -> None:
        ids: Any = {"thread_id": conversation.user, "user_id": conversation.user}
        before, so_far = "", 0
        turn: list[BaseMessage] = []
        for message in conversation.messages:
            so_far += len(str(message.text))
            if isinstance(message, AIMessage):
                turn.append(message)
                continue
            if turn:
                self.memory.save_turn(turn, **ids)
                self.observe(conversation.user)
            prompt = written(self.memory.context([message], **ids))
            self.points.append((so_far // 4, len(prompt) // 4))
            if before:
                self.total += len(prompt)
                self.shared += common_prefix(before, prompt)
            before, turn = prompt, [message]
        self.memory.save_turn(turn, **ids)
        self.observe(conversation.user)
        self.count(conversation)

    def observe(self, thread_id: str) -> None:
        """Observe when the observer in the background would, but before the next turn."""
        observations = self.memory.observations
        if self.observes and observations.get(thread_id=thread_id).pending_tokens >= self.message_tokens:
            observations.observe(thread_id)

    def count(self, conversation: Conversation) -> None:
        """Count what the observations of a conversation stand for."""
        if not self.observes:
            return
        log = self.memory.observations.get(thread_id=conversation.user)
        self.calls += log.usage.calls
        self.noted += log.tokens
        rows = self.memory.history.page(conversation.user, limit=len(conversation.messages))
        covered = [row for row in rows if row.seq <= log.covered_until.get(conversation.user, 0)]
        self.observed += sum(count_tokens_approximately([row.message]) for row in covered)
        cited = {message_id for one in log for _, message_id in one.sources}
        gold = {*conversation.evidence} & {str(row.message.id) for row in covered}
        self.gold += len(gold)
        self.cited += len(gold & cited)

    def curve(self) -> dict[str, int]:
        """Return the mean tokens of a context, by the tokens of the conversation so far."""
        lengths, sizes = np.array(self.points).T
        step = max(1, int(lengths.max()) // POINTS)
        places = lengths // step
        return {str((int(at) + 1) * step): round(float(sizes[places == at].mean())) for at in np.unique(places)}

    def cells(self) -> list[str]:
        sizes = [size for _, size in self.points]
        cells = [f"{np.mean(sizes):,.0f}", f"{max(sizes):,}", f"{self.shared / self.total:.3f}"]
        if not self.calls:
            return [*cells, "", "", ""]
        gold = f"{self.cited / self.gold:.2f}" if self.gold else ""
        return [*cells, f"{self.calls:,}", f"{self.observed / max(1, self.noted):.1f}", gold]


def replay(url: str, path: Path, args: argparse.Namespace) -> dict[str, dict[str, int]]:
    """Print a row for each setting, and return the curves of those without recall."""
    name = path.name.partition(".")[0]
    read = list(conversations(path))[: args.conversations]
    quarter = sum(one.tokens for one in read) // len(read) // 4000 * 1000
    message_tokens = args.message_tokens or min(MESSAGE_TOKENS, quarter)
    curves = {}
    for has_recall in (False,) if args.model else (False, True):
        for setting in SETTINGS:
            options: dict[str, Any] = {"recall": None if has_recall else False}
            if setting == "everything":
                options["history"] = HistoryOptions(last_messages=None)
            if setting == "observations":
                options["observations"] = observing(args.model or Fifth(), message_tokens)
            title = f"{setting}{', recall' if has_recall else ''}"
            prefix = f"{name}-{SETTINGS.index(setting)}-{has_recall:d}"
            with Memory(url, key_prefix=prefix, embeddings=LocalEmbeddings(), **options) as memory:
                found = Replay(memory, message_tokens)
                for one in tqdm(read, desc=title, leave=False):
                    found.run(one)
            print(row(f"{name}, observed at {message_tokens:,}", title, *found.cells()), flush=True)
            if not has_recall:
                curves[setting] = found.curve()
    return curves


# ---------------------------------------------------------------------- what a turn costs


class Costs:
    """Turns of a thread with a log beside turns without, which show as many messages."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.words, self.model, self.url = Words(), Slices(args.dims), url
        self.args = args
        self.asked = 0
        self.trips: list[str] = []  # of each case

    def fill(self, memory: Memory, name: str) -> Any:
        """Make a thread of which the log has about 40,000 tokens, and return its ids."""
        ids: Any = {"thread_id": name, "user_id": f"user of {name}"}
        tokens = 0
        while tokens < 5.2 * LOG_TOKENS:
            messages = self.words.messages(BATCH)
            memory.history.append(messages, **ids)
            tokens += count_tokens_approximately(messages)
        return ids

    def question(self) -> str:
        self.asked += 1
        return f"{self.words.texts(1, 4, 12)[0]} {self.asked}"

    def case(self, name: str, keep: int, *, scope: str = "thread", recall: Any = False, saves: bool = False) -> Case:
        """Prepare two memories that differ in observations alone, and count what they send."""
        observed: Any = {
            "recall": recall,
            "observations": ObservationOptions(
                model=Fifth(),
                scope=cast("Any", scope),
                message_tokens=NEVER,
                keep_tokens=keep,
                observation_tokens=NEVER,
            ),
        }
        with Memory(self.url, embeddings=self.model, **observed) as memory:
            ids = self.fill(memory, f"{name}, {keep}")
            log = memory.observations.observe(ids["thread_id"], user_id=ids["user_id"])
            shown = len(memory.context(self.question(), **ids, read_only=True).messages) - 1
        plain: Any = {"recall": recall, "history": HistoryOptions(last_messages=shown, step=1)}
        others = ids
        if saves:  # each side writes into a thread of its own
            with Memory(self.url, embeddings=self.model, **plain) as memory:
                others = self.fill(memory, f"{name}, without")
        sides = [self.side(observed, ids, shown + 1, saves=saves), self.side(plain, others, shown + 1, saves=saves)]
        self.trips.append(" / ".join(str(trips) for _, trips in sides))
        title = name if saves else f"{name}, {shown:,} messages"
        print(f"{title}: {len(log):,} observations of {log.tokens:,} tokens", flush=True)
        memories = [memory for memory, _ in sides]

        def pair() -> Pair:
            text, messages = self.question(), self.words.messages(2)
            return cast(
                "Pair",
                tuple(
                    partial(memory.save_turn, messages, **where) if saves else partial(memory.context, text, **where)
                    for memory, where in zip(memories, (ids, others), strict=True)
                ),
            )

        return Case(title, pair)

    def side(self, options: dict[str, Any], ids: Any, shown: int, *, saves: bool) -> tuple[Memory, int]:
        """Return a memory that has seen the thread, and the round trips of a call."""
        recorder = Recorder(redis.Redis.from_url(self.url))
        twin = Memory(client=cast("redis.Redis", recorder), embeddings=self.model, **options)
        memory = Memory(self.url, embeddings=self.model, **options)
        for each in (memory, twin):
            for _ in range(2):  # the first checks the indexes and reads the log
                recorder.trips = []
                context = each.context(self.question(), **ids, read_only=True)
                if not saves and len(context.messages) != shown:
                    raise SystemExit(f"{ids}: {len(context.messages)} messages are shown, not {shown}")
                if saves:
                    recorder.trips = []
                    each.save_turn(self.words.messages(2), **ids)
        return memory, len(recorder.trips)

    def run(self) -> None:
        cases = [
            self.case("context", 300),
            self.case("context", 6000),
            self.case("context, recall", 300, recall=SEMANTIC),
            self.case("context, log of the user", 300, scope="user"),
            self.case("save_turn of 2", 300, recall=SEMANTIC, saves=True),
            self.case("save_turn of 2, log of the user", 300, scope="user", recall=SEMANTIC, saves=True),
        ]
        warm_up = max(5, self.args.turns // 10)
        alternate(cases, self.args.turns, warm_up)
        print(row("p50 in milliseconds", "with a log", "without", "ratio", "95 %", "round trips"))
        print(row("---", *["--:"] * 5))
        for case, trips in zip(cases, self.trips, strict=True):
            with_log, without = case.p50s(warm_up)
            ratio, low, high = case.ratio(warm_up)
            print(row(case.name, f"{with_log:.2f}", f"{without:.2f}", f"{ratio:.2f}", f"{low:.2f}-{high:.2f}", trips))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument("--model", help="an observer, as `init_chat_model` knows it; it needs its key")
    parser.add_argument("--message-tokens", type=int, help="default: 30,000, or a quarter of a conversation if less")
    parser.add_argument("--conversations", type=int, help="of each data set at most")
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--turns", type=int, default=500, help="0: do not measure what a turn costs")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    random.seed(3)
    with EmbeddedRedis() as server:
        print(environment(server.url))
        if args.data:
            print(row("data", "setting", "tokens", "largest", "prefix", "calls", "compression", "gold cited"))
            print(row("---", "---", *["--:"] * 6))
            curves = {path.name.partition(".")[0]: replay(server.url, path, args) for path in args.data}
            if args.out:
                args.out.write_text(
                    json.dumps({"observer": args.model or "scripted observer", "curves": curves}, indent=1) + "\n"
                )
        if args.turns:
            Costs(server.url, args).run()


if __name__ == "__main__":
    main()
