"""How much of the evidence for questions do contexts show with observations? It was never measured with a live model.

    python benchmarks/observation_quality.py --model openai:gpt-5-mini locomo.json.gz

takes files of conversations with questions, in the form that `recall_quality.py` reads; the package brings none. All that a user said
becomes one thread, which is observed whenever `--message-tokens` wait. Then each question is asked, without recall. Evidence is shown
if its message is in the context, or if the lines that cite it have half of its words of four letters and more. A live model needs its
key. Without `--model` a script notes the first sentence of each message: it says nothing about a model.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import row
from conversations import ADVERSARIAL, store, users_of
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import AIMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem._engine.calls import chat_model_by_name
from langchain_workingmem._text.unicode import count_tokens
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from conversations import Question, User
    from langchain_core.messages import BaseMessage

ELEMENT = re.compile(r'<(message|observation) n="(\d+)"[^>]*>(.*?)</\1>', re.DOTALL)
SENTENCE, WORD = re.compile(r".*?(?:[.!?](?=\s)|\n|$)"), re.compile(r"\w{4,}")
STEP = 10  # messages that are stored at once


class FirstSentence(SimpleChatModel):
    """An observer by script."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        lines = dict[str, list[str]]()
        for _, number, text in ELEMENT.findall(str(messages[1].text)):
            first = SENTENCE.match(unescape(" ".join(text.split())))
            lines.setdefault(first[0] if first else "", []).append(number)
        return "\n".join(f"- [{','.join(numbers[:64])}] {text}" for text, numbers in lines.items())


def give_assistant(user: User) -> None:
    """Where persons talk among themselves, the first one stands for the user, and the others for the assistant."""
    if any(one.message.type == "ai" for one in user.said):
        return
    for at, one in enumerate(user.said):
        if one.message.name != user.said[0].message.name:
            message = AIMessage(one.message.content, id=one.message.id, name=one.message.name)
            user.said[at] = replace(one, message=message)


def shown(memory: Memory, user: User, question: Question) -> tuple[int, float]:
    """Return the tokens of a context, and which share of the evidence it shows."""
    asked: Any = {"thread_id": user.id, "user_id": user.id, "read_only": True, "now": question.date}
    context = memory.context(question.text, **asked)
    there, lines = {one.id for one in context.messages}, dict[str, set[str]]()
    for line in context.observations:
        for _, id in line.sources:
            lines.setdefault(id, set()).update({*WORD.findall(line.text.casefold())})
    texts = {str(one.message.id): str(one.message.text) for one in user.said}
    gold = {id: {*WORD.findall(texts[id].casefold())} for id in question.evidence}
    noted = {id for id, words in gold.items() if id in lines and 2 * len(words & lines[id]) >= len(words)}
    tokens = sum(count_tokens(str(one.text)) for one in context.messages)
    return tokens, len(gold.keys() & (there | noted)) / len(gold)


def measure(path: Path, name: str, options: ObservationOptions) -> None:
    """Print the row of a data set."""
    found, calls = list[tuple[int, float]](), 0
    for user in users_of(path):
        give_assistant(user)
        asked, stored = [one for one in user.questions if one.category != ADVERSARIAL and one.evidence], 0
        with Memory.embedded(observations=options) as memory:
            for question in asked:
                for first in range(stored, question.known, STEP):
                    store(memory, user, user.said[first : min(first + STEP, question.known)], user.id)
                    if memory.observations.get(thread_id=user.id).pending_tokens >= options.message_tokens:
                        memory.observations.observe(user.id)
                stored = max(stored, question.known)
                found.append(shown(memory, user, question))
            calls += memory.users.usage(user.id).calls
    tokens, share = (sum(column) / len(found) for column in zip(*found, strict=True))
    print(row(path.name.partition(".")[0], name, len(found), f"{tokens:,.0f}", f"{share:.3f}", calls), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--model", help="a live observer, as `init_chat_model` knows it; it needs its key")
    parser.add_argument("--message-tokens", type=int, default=3_000, help="from how many on messages are observed")
    args = parser.parse_args()
    try:
        model = chat_model_by_name(args.model) if args.model else FirstSentence()
    except OptionError as error:
        raise SystemExit(f"Skipped, nothing is measured: {error}") from error
    most = args.message_tokens
    options = ObservationOptions(
        model=model, message_tokens=most, keep_tokens=most // 5, batch_tokens=most // 3, background=False
    )
    print(row("data", "observer", "questions", "tokens", "shown", "calls"), row("---", "---", *["--:"] * 4), sep="\n")
    for path in args.data:
        measure(path, args.model or "first sentence", options)


if __name__ == "__main__":
    main()
