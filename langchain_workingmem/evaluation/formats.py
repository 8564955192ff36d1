"""Reads files of conversations and questions: JSON lines, LoCoMo's `locomo10.json`, and the form of our benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError
from langchain_workingmem.evaluation.datasets import RESOURCE, Collector, DataSet, Record
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator
    from typing import TextIO

ROLES = {"user", "assistant", "human", "ai", "bot", "agent", "model", "system"}  # speakers that are no persons
ADVERSARIAL = "adversarial"  # the category of questions whose premise is false
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ADVERSARIAL}  # of LoCoMo
_DIALOG = re.compile(r"D:?(\d+):(\d+)")
_FORMATS = "use JSON lines, locomo10.json, or the form of benchmarks/recall_quality.py"
_LINES = "write one JSON object a line"


def read(files: Iterable[tuple[str, TextIO]]) -> list[DataSet]:
    """Read open files, each with its name. All files of JSON lines are one data set, each other file is one.

    Raises `OptionError` with the file, the line and the remedy.
    """
    found: dict[str, Collector] = {}
    for name, file in files:
        text, title = file.read(), PurePath(name).name
        whole = _whole(name, text)
        if whole is not None:
            found[f"{name} {len(found)}"] = into = Collector(title, by_time=False)
            _read_whole(into, name, whole)
        else:
            into = found.setdefault("lines", Collector("", by_time=True))
            into.name = ", ".join(filter(None, (into.name, title)))
            _read_lines(into, name, text)
    return [one.data_set() for one in found.values()]


def _whole(name: str, text: str) -> Any:
    """Return the JSON of a whole file; None for a file of JSON lines."""
    try:
        value = json.loads(text.lstrip().partition("\n")[0] or "null")
    except (ValueError, RecursionError):
        value = _json(text, name, _FORMATS)
    return value if isinstance(value, list) or (isinstance(value, Mapping) and "items" in value) else None


def _json(text: str, name: str, remedy: str, number: int = 1) -> Any:
    """Read JSON that begins in a line of a file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at = number - 1 + getattr(error, "lineno", 1)
        raise OptionError(f"{name}, line {at}: it is not JSON ({error})", remedy=remedy) from error


def _read_lines(into: Collector, name: str, text: str) -> None:
    resource_id = RESOURCE
    for number, written in enumerate(text.split("\n"), 1):
        if not written.strip():
            continue
        line, where = _json(written, name, _LINES, number), f"{name}, line {number}"
        if not isinstance(line, Mapping):
            raise OptionError(f"{where}: it is no JSON object", remedy=_LINES)
        if line.get("kind") == "header":
            resource_id = line.get("resource_id") or RESOURCE
        else:
            into.add(where, line, resource_id)


def _read_whole(into: Collector, name: str, whole: Any) -> None:
    items = whole if isinstance(whole, list) else whole["items"]
    if not isinstance(items, list):
        raise OptionError(f"{name}: items is {shown(items)}", remedy=_FORMATS)
    for number, item in enumerate(items):
        where = f"{name}, item {number}"
        try:
            lines = [*(_sample(item, into.left_out) if items is whole else _item(item, causal=whole.get("causal")))]
        except sections.UNREADABLE as error:
            raise OptionError(f"{where}: it has another form than expected ({error!r})", remedy=_FORMATS) from error
        for line in lines:
            into.add(f"{where}, question {line['id']!r}" if {"question", "id"} <= line.keys() else where, line)


def _sample(sample: Any, left_out: Counter[str]) -> Iterator[Record]:
    """Read one conversation of LoCoMo: sessions of two friends, and questions whose evidence is "D<session>:<number>"."""
    talk, resource_id = sample["conversation"], str(sample["sample_id"])
    known, last = set(), None
    for number in count(1):
        session, date = talk.get(f"session_{number}"), talk.get(f"session_{number}_date_time")
        if session is None and date is None:
            break
        for minute, message in enumerate(session or ()):  # the file has dates of sessions that it does not have
            began = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)  # of the session
            last = (began + timedelta(minutes=minute)).isoformat()
            image = message.get("blip_caption")
            known.add(message["dia_id"])
            yield {
                "id": message["dia_id"],
                "role": "user" if message["speaker"] == talk["speaker_a"] else "assistant",
                "name": message["speaker"],
                "text": f"{message['text']} [shared image: {image}]" if image else message["text"],
                "thread_id": f"{resource_id}/session_{number}",
                "resource_id": resource_id,
                "stored_at": last,
            }
    for question in sample["qa"]:
        named = [f"D{int(one)}:{int(two)}" for one, two in _DIALOG.findall(" ".join(question.get("evidence") or ()))]
        evidence = [id for id in dict.fromkeys(named) if id in known]
        if unknown := len({*named} - known):
            left_out["ids of evidence (the file does not have the message)"] += unknown
        if not evidence:
            left_out["questions (no evidence in the file)"] += 1
            continue
        yield {
            "question": question["question"],
            "evidence": evidence,
            "resource_id": resource_id,
            "category": _CATEGORIES.get(question["category"], str(question["category"])),
            "date": last,
        }


def _item(item: Any, *, causal: bool) -> Iterator[Record]:
    """Read one resource of our benchmarks, with `after_thread` where the data set is causal."""
    resource_id, after = item["conversation"]["resource"], list[Record]([{}])
    for thread in item["conversation"]["threads"]:
        last = after[-1]
        for message in thread["messages"]:
            speaker, last = message.get("speaker"), {"thread_id": thread["id"], "id": message["id"]}
            yield {
                **last,
                "role": "user" if message["role"] == "user" else "assistant",
                "name": None if speaker is None or speaker.casefold() in ROLES else speaker,
                "text": message["text"],
                "resource_id": resource_id,
                "stored_at": message.get("timestamp"),
            }
        after.append(last)
    for question in item["questions"]:
        yield {
            "id": question.get("id"),
            "question": question["question"],
            "evidence": question["evidence_message_ids"],
            "resource_id": resource_id,
            "category": question.get("category"),
            "date": question.get("question_date"),
            "after": after[question.get("after_thread", -1)] if causal else None,
        }


def questions_of(data: DataSet) -> Iterator[str]:
    """Return what is asked, but for questions with a false premise."""
    return (one.text for resource in data.resources for one in resource.questions if one.category != ADVERSARIAL)
