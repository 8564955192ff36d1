"""Conversations with questions, checked: every format is read into these records."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, message_to_dict, messages_from_dict

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage

Record: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]  # of a message: thread id, message id

RESOURCE = "user"  # of lines that name none
_ROLES = {"user": HumanMessage, "human": HumanMessage, "assistant": AIMessage, "ai": AIMessage, "system": SystemMessage}
_COMMON = {"kind", "id", "resource_id", "metadata"}
_MESSAGE = _COMMON | {"role", "type", "text", "content", "name", "thread_id", "stored_at"}
_QUESTION = _COMMON | {"question", "evidence", "category", "date", "after", "answer"}
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
        return sum(numbers), max(numbers), sum(count_tokens(str(text)) for text in texts)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Name the file and the line in the errors of what is read there."""
    try:
        yield
    except (OptionError, IdError) as error:
        seen = str(error).removesuffix(f": {error.remedy}")
        remedy = "use another string" if isinstance(error, IdError) else error.remedy
        raise OptionError(f"{where}: {seen}", remedy=remedy) from error


class Collector:
    """Takes conversations and questions line by line, and makes a data set of them.

    `by_time`: messages are ordered by time if all of a resource have one, else as they come.
    """

    def __init__(self, name: str, *, by_time: bool) -> None:
        self.name, self.left_out = name, Counter[str]()
        self._by_time = by_time
        self._resources: dict[str, Resource] = {}
        self._owners: dict[str, str] = {}  # of threads
        self._threads: dict[str, list[str]] = {}  # message id -> the threads that have it
        self._hidden: dict[str, str] = {}  # id of a message that is not stored -> why
        self._asked: list[tuple[str, Mapping[str, Any]]] = []

    def add(self, where: str, line: Mapping[str, Any], resource_id: object = RESOURCE) -> None:
        """Take a line as `export` or as people write it; `where` names it in errors."""
        with located(where):
            match line.get("kind", "question" if "question" in line else "message"):
                case "thread":
                    thread_id = check_id(line.get("id"), "id")
                    self._thread(resource_id, thread_id).threads[thread_id] = {**line}
                case "message" if "message" in line:
                    self._add_exported(line, resource_id)
                case "message":
                    self._add_written(line, resource_id, where)
                case "question":
                    _check_fields(line, _QUESTION)
                    self._asked.append((where, line))  # its evidence may follow
                case kind if kind not in (*sections.KINDS, sections.END):  # the rest of an export has no messages
                    remedy = "use message or question, or a line of `export`"
                    raise OptionError(f"kind {kind!r} is unknown", remedy=remedy)

    def data_set(self) -> DataSet:
        """Return what was taken. Raises `OptionError` for evidence that does not exist, and where nothing is asked."""
        if not self._threads:
            raise OptionError(f"{self.name} has no messages", remedy="pass the conversations too, such as an export")
        if not self._asked:
            remedy = 'add lines such as {"question": "...", "evidence": ["<id of a message>"]}'
            raise OptionError(f"{self.name} has no questions", remedy=remedy)
        resources = [one for one in self._resources.values() if one.messages]
        positions: dict[Key, int] = {}
        times: dict[str, list[datetime]] = {}  # of the messages of a resource that are ordered by time
        for one in resources:
            if self._by_time and all(record["stored_at"] for record in one.messages):
                one.messages.sort(key=_stored_at)
                times[one.id] = [*map(_stored_at, one.messages)]
            keys = ((record["thread_id"], record["message"]["data"]["id"]) for record in one.messages)
            positions |= {key: at for at, key in enumerate(keys)}
        for where, line in self._asked:
            with located(where):
                self._ask(line, positions, times)
        return DataSet(self.name, resources, self.left_out)

    # ------------------------------------------------------------------ messages

    def _add_exported(self, line: Mapping[str, Any], resource_id: object) -> None:
        try:
            (message,) = messages_from_dict([dict(line["message"])])
        except sections.UNREADABLE as error:
            raise OptionError(f"the message cannot be read ({error!r})", remedy="use a line of `export`") from error
        self._add(resource_id, message, line)

    def _add_written(self, line: Mapping[str, Any], resource_id: object, where: str) -> None:
        _check_fields(line, _MESSAGE)
        role, text, name = line.get("role", line.get("type")), line.get("text", line.get("content")), line.get("name")
        id, resource_id = line.get("id", where), line.get("resource_id", resource_id)
        if role == "system":
            text, name = "", None  # it is left out
        if not isinstance(role, str) or role not in _ROLES:
            remedy = "use user or assistant; messages of other kinds come from `workingmem export`"
            raise OptionError(f"the message has the role {shown(role)}", remedy=remedy)
        if not isinstance(text, str) or not isinstance(name, str | None):
            remedy = 'write {"role": "user", "text": "..."}'
            raise OptionError("text or name of the message is no string", remedy=remedy)
        message = _ROLES[role](text, id=check_id(id, "id"), name=name)
        record = {"kind": "message", "thread_id": line.get("thread_id", resource_id)}
        record |= {"message": message_to_dict(message), "stored_at": line.get("stored_at")}
        self._add(resource_id, message, record)

    def _thread(self, resource_id: object, thread_id: str) -> Resource:
        resource_id = check_id(resource_id, "resource_id")
        owner = self._owners.setdefault(thread_id, resource_id)
        if owner != resource_id:
            seen = f"thread {thread_id!r} belongs to {owner!r} and to {resource_id!r}"
            raise OptionError(seen, remedy="give each resource threads of its own")
        resource = self._resources.setdefault(resource_id, Resource(resource_id))
        resource.threads.setdefault(thread_id, {"kind": "thread", "id": thread_id})
        return resource

    def _add(self, resource_id: object, message: BaseMessage, record: Mapping[str, Any]) -> None:
        if record.get("superseded") or not is_storable(message):
            why = "superseded" if record.get("superseded") else "a system message, or generated"
            self.left_out[f"messages ({why})"] += 1
            self._hidden[str(message.id)] = why
            return
        thread_id, id = check_id(record.get("thread_id"), "thread_id"), check_id(message.id, "message id")
        resource, threads = self._thread(resource_id, thread_id), self._threads.setdefault(id, [])
        if thread_id in threads:
            remedy = "give each message its own id"
            raise OptionError(f"message {id!r} is twice in thread {thread_id!r}", remedy=remedy)
        threads.append(thread_id)
        at = record.get("stored_at")
        resource.messages.append({**record, "stored_at": at and _time_of(at).isoformat()})

    # ------------------------------------------------------------------ questions

    def _ask(
        self, line: Mapping[str, Any], positions: Mapping[Key, int], times: Mapping[str, Sequence[datetime]]
    ) -> None:
        text, category, evidence = line.get("question"), line.get("category") or "", line.get("evidence")
        if not isinstance(text, str) or not text.strip() or not isinstance(category, str):
            remedy = 'write {"question": "...", "evidence": ["<id>"]}'
            raise OptionError("question or category is no text", remedy=remedy)
        given = [evidence] if isinstance(evidence, str | dict) else evidence
        if not isinstance(given, list) or not given:
            remedy = "name the ids of the messages that hold the answer"
            raise OptionError("the question has no evidence", remedy=remedy)
        owner, after = line.get("resource_id"), line.get("after")
        resource, keys = self._found(given, None if owner is None else check_id(owner, "resource_id"))
        date = None if line.get("date") is None else _time_of(line["date"])
        known = len(resource.messages)
        if after is not None:
            known = 1 + max(positions[key] for key in self._found([after], resource.id)[1])
        elif date is not None and resource.id in times:
            known = bisect_right(times[resource.id], date)
        if late := [key[1] for key in keys if positions[key] >= known]:
            remedy = "correct after or date: a question comes after its evidence"
            raise OptionError(f"evidence {_some(late)} is said after the question", remedy=remedy)
        resource.questions.append(Question(text=text, evidence=keys, category=category, date=date, known=known))

    def _found(self, given: list[Any], resource_id: str | None) -> tuple[Resource, frozenset[Key]]:
        """Return the one resource that has all of these messages, and their keys."""
        found = [self._keys(one, resource_id) for one in given]
        owners = [{self._owners[thread_id] for thread_id, _ in keys} for keys in found]
        common = set.intersection(*owners)
        if len(common) != 1:
            seen = f"the evidence belongs to {_some(sorted(common or set.union(*owners)))}"
            raise OptionError(seen, remedy="name one resource_id, and evidence of that resource")
        owner = common.pop()
        own = [[key for key in keys if self._owners[key[0]] == owner] for keys in found]
        for keys in own:
            if len(keys) > 1:
                seen = f"message {keys[0][1]!r} is in threads {_some([thread_id for thread_id, _ in keys])}"
                raise OptionError(seen, remedy='write {"thread_id": "...", "id": "..."} instead of the id')
        return self._resources[owner], frozenset(key for (key,) in own)

    def _keys(self, one: Any, resource_id: str | None) -> list[Key]:
        """Return the keys of the messages with this id, in the thread or of the resource that is named."""
        named, given = (one.get("thread_id"), one.get("id")) if isinstance(one, dict) else (None, one)
        wanted, id = None if named is None else check_id(named, "thread_id"), check_id(given, "message id")
        threads = (thread for thread in self._threads.get(id, ()) if wanted in (None, thread))
        keys = [(thread, id) for thread in threads if resource_id in (None, self._owners[thread])]
        if not keys and id in self._hidden:
            raise OptionError(f"evidence {id!r} is {self._hidden[id]}: recall never finds it", remedy="name another")
        if not keys:
            seen = f"no message has the id {id!r}" + (f" for {resource_id!r}" if resource_id is not None else "")
            raise OptionError(seen, remedy="use the id of a message in the files; `workingmem show` prints ids")
        return keys


def _time_of(given: object) -> datetime:
    """Read a time of ISO 8601; without a zone it is UTC."""
    try:
        at = datetime.fromisoformat(str(given))
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if _FIRST <= at < _LAST:
            return at
    except (ValueError, OverflowError):
        pass
    remedy = "use ISO 8601 from 1970 to 2248, such as 2026-05-01T12:00"
    raise OptionError(f"{shown(given)} is no time", remedy=remedy)


def _stored_at(record: Record) -> datetime:
    return datetime.fromisoformat(record["stored_at"])


def _check_fields(line: Mapping[str, Any], known: set[str]) -> None:
    if unknown := [name for name in line if name not in known]:
        remedy = f"use {', '.join(sorted(known))}; metadata may hold anything"
        raise OptionError(f"the field {shown(unknown[0])} is unknown", remedy=remedy)


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _MANY} more" if len(ids) > _MANY else ""
    return ", ".join(map(repr, ids[:_MANY])) + more
