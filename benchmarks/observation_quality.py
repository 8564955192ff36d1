"""How much of the evidence for questions do contexts show with observations, at equal tokens? docs/observations.md has figures.

    python benchmarks/observation_quality.py locomo.json.gz beam.json.gz

replays conversations with questions, in the form that `recall_quality.py` reads; the package brings none.
All that a user said is one thread. It is stored message by message, and observed when the observer is due. Then each question is
asked, and a context for it is assembled. Its messages, notes and recalled messages have at most as many tokens as the budget, without
the words around them. The rows are the observers:

- none: the newest messages that fit; with recall: the last 10 messages, and what recall finds;
- blunt, first sentence, oracle: the log, and the messages that it does not cover; with recall: what recall finds besides.

Blunt writes one line for each call, first sentence that of each message of the user, and the oracle, which knows what will be
asked, each message with evidence, word for word. All three condense a log by leaving out every second note. With `--model
openai:gpt-5-mini` a live model, which needs its key, takes their place.

A message with evidence is **shown** if it is among the messages, if recall brings it, or if a line of the log cites it in its words:
half of the different words of four letters and more of the message (of all its words, if it has none) are in the lines that cite it.
The last column counts the messages that are only **cited**, too, in whichever words.
"""

from __future__ import annotations

import argparse
import re
from bisect import bisect_right
from dataclasses import replace
from html import unescape
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from common import row
from conversations import ADVERSARIAL, store, users_of
from langchain_core.language_models import BaseChatModel, SimpleChatModel
from langchain_core.messages import AIMessage
from tqdm import tqdm

from langchain_workingmem import LocalEmbeddings, Memory, ObservationOptions
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.chat_models import chat_model_by_name
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conversations import Question, User
    from langchain_core.messages import BaseMessage

    from langchain_workingmem.models import MemoryContext

ELEMENT = re.compile(r'<(message|observation) n="(\d+)"(?: role="(\w+)")?[^>]*>(.*?)</\1>', re.DOTALL)
SENTENCE = re.compile(r".*?(?:[.!?](?=\s)|\n|$|[\u3002\uff01\uff1f])")
WORD, NO_WORD = re.compile(r"\w+"), re.compile(r"\W+")
TOP_K = 1_000  # hits, of which so many are shown as fit
PARTS = (4, 2)  # of a conversation: the budgets
LAST = 10  # messages that are shown beside recall
STEP = 10  # messages that are stored at once
HEADS = ("data, budget", "observer", "tokens", "shown", "tokens with recall", "shown", "cited", "calls")


class Said(NamedTuple):
    """What an observer or a reflector is given."""

    number: int
    role: str
    text: str


Notes: TypeAlias = "list[tuple[Sequence[Said], str]]"  # what each line cites, and its text
Observer: TypeAlias = "BaseChatModel | Callable[[Sequence[Said]], Notes] | None"


class Script(SimpleChatModel):
    """An observer and reflector by script."""

    notes: Any  # a function of what is said

    @property
    def _llm_type(self) -> str:
        return "script"

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        found = ELEMENT.findall(str(messages[1].text))
        said = [Said(int(number), role, unescape(" ".join(text.split()))) for _, number, role, text in found]
        if found[0][0] == "observation":
            pairs = [said[at : at + 2] for at in range(0, len(said), 2)]
            return written([(pair, pair[0].text) for pair in pairs])
        return written(self.notes(said)) or written([(said, "Nothing of it matters.")])


def written(notes: Notes) -> str:
    """Write lines as a model does, the same words only once."""
    lines: dict[str, list[str]] = {}
    for cited, text in notes:
        if WORD.search(text):
            lines.setdefault(text, []).extend(str(one.number) for one in cited)
    return "\n".join(f"- [{','.join(numbers)}] {text}" for text, numbers in lines.items())


def blunt(said: Sequence[Said]) -> Notes:
    return [(said, "The user and the assistant talk.")]


def first_sentence(said: Sequence[Said]) -> Notes:
    return [([one], SENTENCE.match(one.text)[0]) for one in said if one.role == "user"]  # type: ignore[index]


def oracle_of(users: Sequence[User]) -> Callable[[Sequence[Said]], Notes]:
    """Return an observer that writes down what the questions of a data set need."""
    keys = {key_of(text) for user in users for text in evidence_of(user).values()}
    return lambda said: [([one], one.text) for one in said if key_of(one.text) in keys]


def evidence_of(user: User) -> dict[str, str]:
    """Return the messages that questions need, with the author in front as observers are shown it."""
    wanted = {id for question in user.questions if question.category != ADVERSARIAL for id in question.evidence}
    said = (one.message for one in user.said)
    return {str(one.id): (f"{one.name}: " if one.name else "") + str(one.text) for one in said if one.id in wanted}


def key_of(text: str) -> str:
    """Return the beginning of a text, without what rendering may change."""
    return NO_WORD.sub("", text)[:80]


def words_of(text: str) -> set[str]:
    words = set(WORD.findall(text.casefold()))
    return {one for one in words if len(one) > 3} or words


def give_assistant(user: User) -> None:
    """Where persons talk among themselves, the first of each thread stands for the user, and the others for the assistant."""
    if any(one.message.type == "ai" for one in user.said):
        return
    first: dict[str, str | None] = {}
    for at, one in enumerate(user.said):
        message = one.message
        if first.setdefault(one.thread_id, message.name) != message.name:
            user.said[at] = replace(one, message=AIMessage(message.content, id=message.id, name=message.name))


class Replay:
    """One observer and one budget, on all conversations of a data set."""

    def __init__(self, url: str, prefix: str, observer: Observer, budget: int) -> None:
        model = observer if isinstance(observer, BaseChatModel | None) else Script(notes=observer)
        self.budget, self.due = budget, budget * 3 // 7
        observing = model and ObservationOptions(  # the defaults, of which a context has at most 70,000 tokens
            model=model,
            message_tokens=self.due,
            keep_tokens=budget * 6 // 70,
            batch_tokens=budget // 7,
            observation_tokens=budget * 4 // 7,
            background=False,
        )
        options: Any = {"embeddings": LocalEmbeddings(), "observations": observing}
        self.memory = Memory(url, key_prefix=prefix, **options)
        self.has_log, self.calls = model is not None, 0
        self.rows: list[
            tuple[float, ...]
        ] = []  # of each question: tokens and share without recall, with recall, share cited

    def run(self, user: User, limit: int) -> None:
        """Store a conversation, and ask each question when what was said before it is stored."""
        asked = [one for one in user.questions if one.category != ADVERSARIAL]
        stored = 0
        for question in asked[:: max(1, len(asked) // limit)]:
            for first in range(stored, question.known, STEP):
                self.store(user, first, min(first + STEP, question.known))
            stored = question.known
            self.ask(user, question)
        if self.has_log:
            self.calls += self.memory.observations.get(thread_id=user.id).usage.calls

    def store(self, user: User, first: int, last: int) -> None:
        store(self.memory, user, user.said[first:last], user.id)
        if self.has_log and self.memory.observations.get(thread_id=user.id).pending_tokens >= self.due:
            log = self.memory.observations.observe(user.id)
            if log.pending_tokens >= self.due:
                raise SystemExit(f"The observer did not observe: {log.usage.last_error}")

    def ask(self, user: User, question: Question) -> None:
        ids: Any = {"thread_id": user.id, "user_id": user.id, "read_only": True, "now": question.date}
        texts = {str(one.message.id): str(one.message.text) for one in user.said[: question.known]}
        fits = bisect_right([*accumulate(map(count_tokens, reversed(texts.values())))], self.budget)
        most = (None, None) if self.has_log else (fits, min(fits, LAST))
        alone = self.memory.context(question.text, recall=False, last_messages=most[0], **ids)
        base = alone if self.has_log else self.memory.context(question.text, recall=False, last_messages=most[1], **ids)
        left = max(1, self.budget - tokens_in(base, texts))
        both = self.memory.context(question.text, last_messages=most[1], max_tokens=left, top_k=TOP_K, **ids)
        gold = {id: texts[id] for id in question.evidence}
        (share, _), (share_both, cited) = found_in(alone, gold), found_in(both, gold)
        self.rows.append((tokens_in(alone, texts), share, tokens_in(both, texts), share_both, cited))

    def cells(self) -> list[str]:
        tokens, share, tokens_both, share_both, cited = np.mean(self.rows, axis=0)
        figures = [f"{tokens:,.0f}", f"{share:.3f}", f"{tokens_both:,.0f}", f"{share_both:.3f}"]
        return [*figures, f"{cited:.3f}" if self.has_log else "", f"{self.calls:,}" if self.has_log else ""]


def tokens_in(context: MemoryContext, texts: dict[str, str]) -> int:
    """Count the messages, notes and recalled messages of a context, but neither the question nor the words around them."""
    shown = [texts[str(one.id)] for one in context.messages if one.id in texts]
    brought = [str(one.text) for one in (*context.recalled.messages, *(context.observations or ()))]
    return sum(map(count_tokens, shown + brought))


def found_in(context: MemoryContext, gold: dict[str, str]) -> tuple[float, float]:
    """Return which share of messages a context shows, and which it shows or cites."""
    there = {str(one.id) for one in (*context.messages, *context.recalled.messages)}
    lines: dict[str, set[str]] = {}
    for line in context.observations or ():
        for _, id in line.sources:
            lines.setdefault(id, set()).update(words_of(line.text))
    noted = {id for id, text in gold.items() if 2 * len((words := words_of(text)) & lines.get(id, set())) >= len(words)}
    return len(gold.keys() & (there | noted)) / len(gold), len(gold.keys() & (there | lines.keys())) / len(gold)


def measure(name: str, users: list[User], observers: dict[str, Observer], args: argparse.Namespace) -> None:
    """Print the rows of a data set."""
    messages = sum(len(user.said) for user in users)
    mean = sum(count_tokens(str(one.message.text)) for user in users for one in user.said) // len(users)
    gold = [text for user in users for text in evidence_of(user).values()]
    for user in users:
        give_assistant(user)
    size, share = f"{len(users)} conversations of {mean:,} tokens on average", len(gold) / messages
    needed = f"{len(gold):,} ({share:.0%}) with {sum(map(count_tokens, gold)) // len(users):,} tokens a conversation"
    print(f"{name}: {size}; {messages:,} messages, of which questions need {needed}")
    print(row(*HEADS), row("---", "---", *["--:"] * 6), sep="\n")
    with EmbeddedRedis() as server:
        for budget in args.budgets or [mean // part for part in PARTS]:
            for kind, observer in observers.items():
                replay = Replay(server.url, f"{budget}-{kind.replace(' ', '-')}", observer, budget)
                with replay.memory:
                    for user in tqdm(users, desc=f"{budget:,}, {kind}", leave=False):
                        replay.run(user, args.limit)
                title = f"{name.partition('.')[0]}, {len(replay.rows)} questions, {budget:,}"
                print(row(title, kind, *replay.cells()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--model", help="a live observer instead, as `init_chat_model` knows it; it needs its key")
    parser.add_argument("--budgets", nargs="*", type=int, help="tokens; default: a quarter and half of a conversation")
    parser.add_argument("--limit", type=int, default=10**9, help="questions of each conversation, about")
    args = parser.parse_args()
    if missing := [str(path) for path in args.data if not path.exists()]:
        raise SystemExit(f"There is no {', '.join(missing)}: benchmarks/README.md says which data sets it takes.")
    try:
        live = {args.model: chat_model_by_name(args.model)} if args.model else {}
    except OptionError as error:
        raise SystemExit(f"Nothing is measured: {error}") from error
    for path in args.data:
        users = users_of(path)
        scripts = {"blunt": blunt, "first sentence": first_sentence, "oracle": oracle_of(users)}
        measure(path.name, users, {"none": None, **(live or scripts)}, args)


if __name__ == "__main__":
    main()
