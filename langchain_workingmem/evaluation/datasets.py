"""Conversations with questions, checked: every format is read into these records."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage, message_to_dict, messages_from_dict

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.users import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

Record: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]  # of a message: thread id, message id

KINDS = {"user": HumanMessage, "human": HumanMessage, "assistant": AIMessage, "ai": AIMessage}
RESOURCE = "user"  # of lines that name none
_MESSAGE = {
    "kind",
    "id",
    "role",
    "type",
    "text",
    "content",
    "name",
    "thread_id",
    "resource_id",
    "stored_at",
    "metadata",
}
_QUESTION = {"kind", "id", "question", "evidence", "resource_id", "category", "date", "after", "answer", "metadata"}
_FIRST, _LAST = datetime(1970, 1, 2, tzinfo=UTC), datetime(2249, 1, 1, tzinfo=UTC)
_MANY = 3  # ids that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the messages that hold the answer."""

    text: str
    evidence: frozenset[Key]
    category: str
    date: datetime | None  # when it is asked; the search takes it as the present
    known: int  # messages that are stored when it is asked, from the first of its resource


@dataclass(slots=True)
class Resource:
    """All that one resource said, in order, and what is asked about it."""

    id: str
    threads: dict[str, Record] = field(default_factory=dict)
    messages: list[Record] = field(default_factory=list)  # records of an import
    questions: list[Question] = field(default_factory=list)


@dataclass(slots=True)
class DataSet:
    """The conversations and questions of a file, or of several files that belong together."""

    name: str
    resources: list[Resource]
    left_out: Counter[str]  # what was not used, in words, and how often

    def sizes(self) -> tuple[int, int, int]:
        """Return the number of messages, that of the resource with the most, and roughly the tokens of all."""
        numbers = [len(one.messages) for one in self.resources]
        texts = (record["message"]["data"]["content"] for one in self.resources for record in one.messages)
        return sum(numbers), max(numbers), sum(math.ceil(len(text) / 4) for text in map(str, texts))


class Collector:
    """Takes conversations and questions one by one, and makes a data set of them.

    `where` names the line, for errors. `by_time`: messages are ordered by time if all have one, else as they come.
    """

    def __init__(self, name: str, *, by_time: bool) -> None:
        self.name, self.left_out = name, Counter[str]()
        self._by_time = by_time
        self._resources: dict[str, Resource] = {}
        self._owners: dict[str, str] = {}  # of threads
        self._keys: dict[str, list[tuple[str, Key]]] = {}  # message id -> resource, key
        self._hidden: dict[str, str] = {}  # id of a message that is not stored -> why
        self._times: dict[str, list[datetime]] = {}  # of a resource's messages, if they are ordered by time
        self._asked: list[tuple[str, Mapping[str, Any], int | None]] = []

    def add_thread(self, where: str, resource_id: str, record: Mapping[str, Any]) -> None:
        """Take the record of a thread."""
        thread_id = _checked(where, record.get("id"), "id")
        self._thread(where, resource_id, thread_id).threads[thread_id] = {**record}

    def add_record(self, where: str, resource_id: str, record: Mapping[str, Any]) -> None:
        """Take a message as `export` writes it."""
        try:
            (message,) = messages_from_dict([dict(record["message"])])
        except UNREADABLE as error:
            raise refused(where, f"the message cannot be read ({error!r})", "use a line of `export`") from error
        if not is_storable(message) or record.get("superseded"):
            why = "superseded" if record.get("superseded") else "a system message, or generated"
            self._hide(message.id, why)
            return
        thread_id = _checked(where, record.get("thread_id"), "thread_id")
        at = record.get("stored_at")
        self._add(
            where, resource_id, thread_id, message.id, {**record, "stored_at": at and time_of(where, at).isoformat()}
        )

    def add_message(self, where: str, line: Mapping[str, Any], resource_id: str = RESOURCE) -> None:
        """Take a message as people write it."""
        _check_fields(where, line, _MESSAGE)
        resource_id = line.get("resource_id", resource_id)
        thread_id = _checked(where, line.get("thread_id", resource_id), "thread_id")
        id = line.get("id", where)
        role, text, name = line.get("role", line.get("type")), line.get("text", line.get("content")), line.get("name")
        if role == "system":
            self._hide(id, "a system message, or generated")
            return
        if not isinstance(role, str) or role not in KINDS:
            remedy = "use user or assistant; messages of other kinds come from `workingmem export`"
            raise refused(where, f"the message has the role {shown(role)}", remedy)
        if not isinstance(text, str) or not isinstance(name, str | None):
            raise refused(where, "text or name of the message is no string", 'write {"role": "user", "text": "..."}')
        message = message_to_dict(KINDS[role](text, id=_checked(where, id, "id"), name=name))
        at = line.get("stored_at")
        record = {"kind": "message", "thread_id": thread_id, "message": message}
        self._add(where, resource_id, thread_id, id, {**record, "stored_at": at and time_of(where, at).isoformat()})

    def add_question(self, where: str, line: Mapping[str, Any], known: int | None = None) -> None:
        """Take a question; `known` is the number of messages that are stored when it is asked."""
        _check_fields(where, line, _QUESTION)
        self._asked.append((where, line, known))

    def knows(self, resource_id: str, message_id: object) -> bool:
        """Tell whether a resource has a message with this id."""
        return any(owner == resource_id for owner, _ in self._keys.get(str(message_id), ()))

    def data_set(self) -> DataSet:
        """Return what was taken. Raises `OptionError` for evidence that does not exist, and where nothing is asked."""
        if not self._keys:
            raise OptionError(f"{self.name} has no messages", remedy="pass the conversations too, such as an export")
        if not self._asked:
            remedy = 'add lines such as {"question": "...", "evidence": ["<id of a message>"]}'
            raise OptionError(f"{self.name} has no questions", remedy=remedy)
        ordered = {id: self._ordered(resource) for id, resource in self._resources.items()}
        for where, line, known in self._asked:
            resource_id, question = self._resolved(where, line, known, ordered)
            self._resources[resource_id].questions.append(question)
        resources = [one for one in self._resources.values() if one.messages]
        return DataSet(self.name, resources, self.left_out)

    # ------------------------------------------------------------------ messages

    def _hide(self, id: object, why: str) -> None:
        self.left_out[f"messages ({why})"] += 1
        self._hidden[str(id)] = why

    def _thread(self, where: str, resource_id: object, thread_id: str) -> Resource:
        resource_id = _checked(where, resource_id, "resource_id")
        owner = self._owners.setdefault(thread_id, resource_id)
        if owner != resource_id:
            seen = f"thread {thread_id!r} belongs to {owner!r} and to {resource_id!r}"
            raise refused(where, seen, "give each resource threads of its own")
        resource = self._resources.setdefault(resource_id, Resource(resource_id))
        resource.threads.setdefault(thread_id, {"kind": "thread", "id": thread_id})
        return resource

    def _add(self, where: str, resource_id: object, thread_id: str, id: object, record: Record) -> None:
        id = _checked(where, id, "message id")
        resource = self._thread(where, resource_id, thread_id)
        keys = self._keys.setdefault(id, [])
        if any(key == (thread_id, id) for _, key in keys):
            raise refused(where, f"message {id!r} is twice in thread {thread_id!r}", "give each message its own id")
        keys.append((resource.id, (thread_id, id)))
        resource.messages.append(record)

    def _ordered(self, resource: Resource) -> dict[Key, int]:
        """Sort the messages of a resource, and return the position of each."""
        if self._by_time and all(record["stored_at"] for record in resource.messages):
            resource.messages.sort(key=_stored_at)
            self._times[resource.id] = [*map(_stored_at, resource.messages)]
        return {
            (record["thread_id"], record["message"]["data"]["id"]): at for at, record in enumerate(resource.messages)
        }

    # ------------------------------------------------------------------ questions

    def _resolved(
        self, where: str, line: Mapping[str, Any], known: int | None, ordered: Mapping[str, Mapping[Key, int]]
    ) -> tuple[str, Question]:
        text, category, evidence = line.get("question"), line.get("category") or "", line.get("evidence")
        if not isinstance(text, str) or not text.strip() or not isinstance(category, str):
            raise refused(where, "question or category is no text", 'write {"question": "...", "evidence": ["<id>"]}')
        given = [evidence] if isinstance(evidence, str | dict) else evidence
        if not isinstance(given, list) or not given:
            raise refused(where, "the question has no evidence", "name the ids of the messages that hold the answer")
        owner = line.get("resource_id")
        resource_id = self._resource_of(where, given, owner and _checked(where, owner, "resource_id"))
        keys = frozenset(self._key(where, one, resource_id) for one in given)
        positions, messages = ordered[resource_id], self._resources[resource_id].messages
        date = None if line.get("date") is None else time_of(where, line["date"])
        if known is None and line.get("after") is not None:
            after = line["after"]
            known = 1 + positions[self._key(where, after, self._resource_of(where, [after], resource_id))]
        elif known is None and date is not None and resource_id in self._times:
            known = bisect_right(self._times[resource_id], date)
        known = len(messages) if known is None else known
        if late := [id for thread, id in keys if positions[thread, id] >= known]:
            remedy = "correct after or date: a question comes after its evidence"
            raise refused(where, f"evidence {_some(late)} is said after the question", remedy)
        return resource_id, Question(text=text, evidence=keys, category=category, date=date, known=known)

    def _resource_of(self, where: str, given: list[Any], resource_id: object) -> str:
        """Return the one resource that has all of these messages."""
        owners = []
        for one in given:
            thread_id, id = _parts(where, one)
            found = {owner for owner, key in self._keys.get(id, ()) if thread_id in (None, key[0])}
            if not found or (resource_id is not None and resource_id not in found):
                if id in self._hidden:
                    raise refused(
                        where, f"evidence {id!r} is {self._hidden[id]}: recall never finds it", "name another"
                    )
                seen = f"no message has the id {id!r}" + (f" for {resource_id!r}" if resource_id is not None else "")
                raise refused(where, seen, "use the id of a message in the files; `workingmem show` prints ids")
            owners.append(found if resource_id is None else {str(resource_id)})
        common = set.intersection(*owners)
        if len(common) != 1:
            seen = f"the evidence belongs to {_some(sorted(common or set.union(*owners)))}"
            raise refused(where, seen, "name one resource_id, and evidence of that resource")
        return common.pop()

    def _key(self, where: str, one: Any, resource_id: str) -> Key:
        thread_id, id = _parts(where, one)
        keys = [key for owner, key in self._keys[id] if owner == resource_id and thread_id in (None, key[0])]
        if len(keys) > 1:
            remedy = 'write {"thread_id": "...", "id": "..."} instead of the id'
            raise refused(where, f"message {id!r} is in threads {_some([key[0] for key in keys])}", remedy)
        return keys[0]


def refused(where: str, seen: str, remedy: str) -> OptionError:
    """Return the error for a line that cannot be used."""
    return OptionError(f"{where}: {seen}", remedy=remedy)


def time_of(where: str, given: object) -> datetime:
    """Read a time of ISO 8601; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(str(given))
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if _FIRST <= at < _LAST:
            return at
    except (ValueError, OverflowError):
        pass
    raise refused(where, f"{shown(given)} is no time", "use ISO 8601 from 1970 to 2248, such as 2026-05-01T12:00")


def _stored_at(record: Record) -> datetime:
    return datetime.fromisoformat(record["stored_at"])


def _parts(where: str, one: Any) -> tuple[str | None, str]:
    """Return thread id, if it is named, and message id."""
    thread_id, id = (one.get("thread_id"), one.get("id")) if isinstance(one, dict) else (None, one)
    return None if thread_id is None else _checked(where, thread_id, "thread_id"), _checked(where, id, "message id")


def _checked(where: str, id: object, name: str) -> str:
    try:
        return check_id(id, name)
    except WorkingMemError as error:
        raise refused(where, str(error).removesuffix(f": {error.remedy}"), "use another string") from error


def _check_fields(where: str, line: Mapping[str, Any], known: set[str]) -> None:
    if unknown := [name for name in line if name not in known]:
        remedy = f"use {', '.join(sorted(known))}; metadata may hold anything"
        raise refused(where, f"the field {shown(unknown[0])} is unknown", remedy)


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _MANY} more" if len(ids) > _MANY else ""
    return ", ".join(map(repr, ids[:_MANY])) + more
