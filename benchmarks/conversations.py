"""Reads conversations with questions, in the common form that `recall_quality.py` describes, as JSON or gzipped JSON."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict

from langchain_workingmem.importers import header

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from langchain_workingmem import Memory

ADVERSARIAL = "adversarial"  # the category of questions whose premise is false
ROLES = {"user", "assistant", "human", "ai", "bot", "agent", "model", "system"}  # speakers that are no persons


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the messages that hold the answer."""

    text: str
    evidence: frozenset[str]
    category: str
    date: datetime | None  # when it is asked
    known: int  # messages that are stored when it is asked, from the first of its user


@dataclass(frozen=True, slots=True)
class Said:
    """A message, where and when it was said."""

    thread_id: str
    message: BaseMessage
    at: datetime | None


@dataclass(slots=True)
class User:
    """All that one user said, in order, and what is asked about it."""

    id: str
    said: list[Said] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def users_of(path: Path) -> list[User]:
    """Read a data set."""
    raw = path.read_bytes()
    data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return [_user(item, causal=bool(data.get("causal"))) for item in data["items"]]


def _user(item: dict[str, Any], *, causal: bool) -> User:
    user, after = User(item["conversation"]["user"]), [0]  # messages known after each thread
    for thread in item["conversation"]["threads"]:
        for one in thread["messages"]:
            speaker = one.get("speaker")
            name = None if speaker is None or speaker.casefold() in ROLES else speaker
            kind = HumanMessage if one["role"] == "user" else AIMessage
            message = kind(one["text"], id=one["id"], name=name)
            user.said.append(Said(thread["id"], message, _time(one.get("timestamp"))))
        after.append(len(user.said))
    for one in item["questions"]:
        user.questions.append(
            Question(
                text=one["question"],
                evidence=frozenset(one["evidence_message_ids"]),
                category=one.get("category") or "",
                date=_time(one.get("question_date")),
                known=after[one.get("after_thread", -1)] if causal else len(user.said),
            )
        )
    user.questions.sort(key=lambda question: question.known)
    return user


def _time(given: str | None) -> datetime | None:
    at = None if given is None else datetime.fromisoformat(given)
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)


def store(memory: Memory, user: User, said: Sequence[Said], thread_id: str | None = None) -> None:
    """Store messages with the times at which they were said, in their threads or in one."""
    by_thread: dict[str, list[dict[str, Any]]] = {}
    for one in said:
        name = thread_id or one.thread_id
        record: dict[str, Any] = {"kind": "message", "thread_id": name, "message": message_to_dict(one.message)}
        record["stored_at"] = one.at and one.at.isoformat()
        by_thread.setdefault(name, [{"kind": "thread", "id": name}]).append(record)
    memory.users.load([header(user.id), *chain.from_iterable(by_thread.values())])
