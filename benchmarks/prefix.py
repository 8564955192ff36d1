"""Which share of a prompt is a prefix of the prompt before it, in the same thread? Providers bill such tokens at a fraction.

    python benchmarks/prefix.py locomo.json.gz beam.json.gz realmem.json.gz

replays public conversations, in the form that `recall_quality.py` reads: for each message of the user a context is assembled,
as the model would be sent it, and then the turn is saved. A prompt is all its messages, written one after the other; tokens are
characters / 4. The first context of a thread has none before it and does not count. Of a chat between two persons the
first speaker stands for the user. With `--one-thread` all threads of a user are replayed as one.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import row
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from tqdm import tqdm

from langchain_workingmem import HistoryOptions, LocalEmbeddings, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.models import MemoryContext

PROMPT = "You are a helpful assistant. Answer in the language of the user, and be brief." * 4
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "with working memory": {"working_memory": WorkingMemoryOptions()},
    "recall behind the system prompt": {"recall": RecallOptions(placement="system")},
    "without recall": {"recall": False},
    "exactly the last 10": {"history": HistoryOptions(step=1)},
    "the whole history": {"history": HistoryOptions(last_messages=None)},
    "8,000 tokens of history": {"history": HistoryOptions(last_messages=None, max_tokens=8000)},
}


def conversations(path: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (user, [(kind, text), ...]) of each thread."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for item in json.loads(text)["items"]:
        conversation = item["conversation"]
        for thread in conversation["threads"]:
            users = {"user", "human"}
            first = next((m["speaker"] for m in thread["messages"]), None)
            lines = []
            for message in thread["messages"]:
                role = message.get("role")
                is_user = role in users if role in {*users, "assistant", "ai"} else message["speaker"] == first
                lines.append(("q" if is_user else "a", message["text"]))
            yield conversation["user"], lines


def written(context: MemoryContext) -> str:
    """Write a prompt as one text."""
    parts = ["system", PROMPT, *context.system]
    for message in context.messages:
        parts += [message.type, str(message.text)]
    return "\n".join(parts)


def common_prefix(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def measure(memory: Memory, threads: list[tuple[str, list[tuple[str, str]]]], name: str) -> tuple[float, float, int]:
    """Return the share of all tokens, the mean share of a context, and the mean tokens of one."""
    total = shared = count = 0
    shares = 0.0
    for number, (user, lines) in enumerate(tqdm(threads, desc=name, leave=False)):
        ids: Any = {"thread_id": f"t{number}", "user_id": f"{name}-{user}"}
        before = ""
        turn: list[BaseMessage] = []
        for kind, text in lines:
            if kind == "a":
                turn.append(AIMessage(text))
                continue
            if turn:
                memory.save_turn(turn, **ids)
            question = HumanMessage(text)
            prompt = written(memory.context([question], **ids))
            if before:
                same = common_prefix(before, prompt)
                total, shared, count = total + len(prompt), shared + same, count + 1
                shares += same / len(prompt)
            before, turn = prompt, [question]
        if turn:
            memory.save_turn(turn, **ids)
    return shared / total, shares / count, total // count // 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=40, help="of each data set at most")
    parser.add_argument("--one-thread", action="store_true", help="replay all threads of a user as one")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    print(row("data", "setting", "of all tokens", "of a context", "tokens"))
    with EmbeddedRedis() as server:
        for path in args.data:
            threads = list(conversations(path))
            if args.one_thread:
                joined: dict[str, list[tuple[str, str]]] = {}
                for user, lines in threads:
                    joined.setdefault(user, []).extend(lines)
                threads = list(joined.items())
            threads = threads[: args.threads]
            for setting, options in SETTINGS.items():
                prefix = f"{path.name.partition('.')[0]}-{len(figures)}"
                with Memory(
                    server.url,
                    key_prefix=prefix,
                    embeddings=LocalEmbeddings(),
                    **options,
                ) as memory:
                    of_all, of_each, tokens = measure(memory, threads, prefix)
                figures[f"{path.name.partition('.')[0]}, {setting}"] = [round(of_all, 3), round(of_each, 3), tokens]
                print(row(path.name.partition(".")[0], setting, f"{of_all:.3f}", f"{of_each:.3f}", f"{tokens:,}"))
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
