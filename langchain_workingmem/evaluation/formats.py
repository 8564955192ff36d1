"""Reads files of conversations and questions: JSON lines, LoCoMo's `locomo10.json`, and the form of our benchmarks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError
from langchain_workingmem.evaluation.datasets import RESOURCE, Collector, DataSet, refused
from langchain_workingmem.users import KINDS, UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO

ROLES = {"user", "assistant", "human", "ai", "bot", "agent", "model", "system"}  # speakers that are no persons
ADVERSARIAL = "adversarial"  # the category of questions whose premise is false
_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: ADVERSARIAL}  # of LoCoMo
_DIALOG = re.compile(r"D:?(\d+):(\d+)")
_FORMATS = "use JSON lines, locomo10.json, or the form of benchmarks/recall_quality.py"


def read(files: Iterable[tuple[str, TextIO]]) -> list[DataSet]:
    """Read open files, each with its name. All files of JSON lines are one data set, each other file is one.

    Raises `OptionError` with the file, the line and the remedy.
    """
    found: list[Collector] = []
    lines: Collector | None = None
    for name, file in files:
        whole, first = _begin(name, file)
        title = PurePath(name).name
        if whole is not None:
            found.append(_read_whole(Collector(title, by_time=False), name, whole))
            continue
        if lines is None:
            lines = Collector(title, by_time=True)
            found.append(lines)
        else:
            lines.name += f", {title}"
        _read_lines(lines, name, chain(first, file))
    return [one.data_set() for one in found]


def _begin(name: str, file: TextIO) -> tuple[Any, list[str]]:
    """Return the JSON of the whole file, or None and the lines that were read to see that it consists of lines."""
    first: list[str] = []
    for line in file:
        first.append(line)
        if line.strip():
            break
    try:
        value = json.loads("".join(first) or "null")
    except (ValueError, RecursionError):
        try:
            value = json.loads("".join(first) + file.read())
        except (ValueError, RecursionError) as error:
            at = getattr(error, "lineno", len(first))
            raise refused(f"{name}, line {at}", f"it is not JSON ({error})", _FORMATS) from error
    if isinstance(value, list) or (isinstance(value, Mapping) and "items" in value):
        return value, first
    return None, first


# ---------------------------------------------------------------------- JSON lines


def _read_lines(into: Collector, name: str, lines: Iterable[str]) -> None:
    resource_id = RESOURCE
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{name}, line {number}"
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise refused(where, f"it is not JSON ({error})", "write one JSON object a line") from error
        if not isinstance(line, Mapping):
            raise refused(where, "it is no JSON object", "write one JSON object a line")
        match line.get("kind", "question" if "question" in line else "message"):
            case "header":
                resource_id = line.get("resource_id") or RESOURCE
            case "thread":
                into.add_thread(where, resource_id, line)
            case "message" if "message" in line:
                into.add_record(where, resource_id, line)
            case "message":
                into.add_message(where, line, resource_id)
            case "question":
                into.add_question(where, line)
            case kind if kind not in KINDS:  # the rest of an export: it has no messages
                raise refused(where, f"kind {kind!r} is unknown", "use message or question, or a line of `export`")


# ---------------------------------------------------------------------- whole files


def _read_whole(into: Collector, name: str, whole: Any) -> Collector:
    samples = isinstance(whole, list)
    items = whole if samples else whole["items"]
    if not isinstance(items, list):
        raise refused(name, f"items is {shown(items)}", _FORMATS)
    for number, item in enumerate(items):
        where = f"{name}, item {number}"
        try:
            if samples:
                _read_sample(into, where, item)
            else:
                _read_item(into, where, item, causal=bool(whole.get("causal")))
        except OptionError:
            raise
        except UNREADABLE as error:
            raise refused(where, f"it has another form than expected ({error!r})", _FORMATS) from error
    return into


def _read_sample(into: Collector, where: str, sample: Any) -> None:
    """Read one conversation of LoCoMo: sessions of two friends, and questions whose evidence is "D<session>:<number>"."""
    talk, resource_id = sample["conversation"], str(sample["sample_id"])
    last, known = None, 0
    for number in count(1):
        session, date = talk.get(f"session_{number}"), talk.get(f"session_{number}_date_time")
        if session is None and date is None:
            break
        if not session:
            continue  # the file has dates of sessions that it does not have
        began = datetime.strptime(date, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for minute, message in enumerate(session):  # the file has the beginning of a session only
            last = (began + timedelta(minutes=minute)).isoformat()
            image = message.get("blip_caption")
            line = {
                "id": message["dia_id"],
                "role": "user" if message["speaker"] == talk["speaker_a"] else "assistant",
                "name": message["speaker"],
                "text": f"{message['text']} [shared image: {image}]" if image else message["text"],
                "thread_id": f"{resource_id}/session_{number}",
                "stored_at": last,
            }
            into.add_message(where, line, resource_id)
            known += 1
    for question in sample["qa"]:
        named = [f"D{int(one)}:{int(two)}" for one, two in _DIALOG.findall(" ".join(question.get("evidence") or ()))]
        evidence = [id for id in dict.fromkeys(named) if into.knows(resource_id, id)]
        if unknown := len({*named} - {*evidence}):
            into.left_out["ids of evidence (the file does not have the message)"] += unknown
        if not evidence:
            into.left_out["questions (no evidence in the file)"] += 1
            continue
        line = {
            "question": question["question"],
            "evidence": evidence,
            "resource_id": resource_id,
            "category": _CATEGORIES.get(question["category"], str(question["category"])),
            "date": last,
        }
        into.add_question(where, line, known)


def _read_item(into: Collector, where: str, item: Any, *, causal: bool) -> None:
    """Read one resource of our benchmarks, with `after_thread` where the data set is causal."""
    conversation, known = item["conversation"], [0]
    resource_id = conversation["resource"]
    for thread in conversation["threads"]:
        for message in thread["messages"]:
            into.add_message(where, _line(message, thread["id"]), resource_id)
        known.append(known[-1] + len(thread["messages"]))
    for question in item["questions"]:
        line = {
            "question": question["question"],
            "evidence": question["evidence_message_ids"],
            "resource_id": resource_id,
            "category": question.get("category"),
            "date": question.get("question_date"),
        }
        stored = known[question.get("after_thread", len(known) - 1)] if causal else known[-1]
        into.add_question(f"{where}, question {question.get('id')!r}", line, stored)


def _line(message: Any, thread_id: str) -> dict[str, Any]:
    speaker = message.get("speaker")
    return {
        "id": message["id"],
        "role": "user" if message["role"] == "user" else "assistant",
        "name": None if speaker is None or speaker.casefold() in ROLES else speaker,
        "text": message["text"],
        "thread_id": thread_id,
        "stored_at": message.get("timestamp"),
    }


def questions_of(data: DataSet) -> Iterator[str]:
    """Return what is asked, but for questions with a false premise."""
    return (one.text for resource in data.resources for one in resource.questions if one.category != ADVERSARIAL)
