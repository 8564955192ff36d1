"""How each function of the text and of the queries is called with a text of any size: `test_growth.py` measures them."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.store.base import ListNamespacesOp, MatchCondition, SearchOp
from pydantic import BaseModel, ConfigDict

from langchain_workingmem._documents import (
    diffs,
    formats,
    joining,
    lines,
    media,
    merging,
    metadata,
    padding,
    schemas,
    threeway,
)
from langchain_workingmem._documents import filters as json_filters
from langchain_workingmem._documents.filters import Filter
from langchain_workingmem._documents.values import foreign
from langchain_workingmem._documents.values import paths as keeping_paths
from langchain_workingmem._redis import keys
from langchain_workingmem._redis import queries as search
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._text import chunks, names, nesting, observed, rendering, telling, time_phrases, unicode
from langchain_workingmem._text.media import blocks
from langchain_workingmem._text.telling import words
from langchain_workingmem.errors import OptionError, RedisReplyError, WorkingMemoryValidationError
from langchain_workingmem.items import filters
from langchain_workingmem.items import searches as item_searches
from langchain_workingmem.items.state import StoreState, Vectors
from langchain_workingmem.keeping import lines as keeping_lines
from langchain_workingmem.keeping.checking import Given, check
from langchain_workingmem.keeping.claims import Source, read_claim, write_claim
from langchain_workingmem.keeping.keeper import answers as keeper_answers
from langchain_workingmem.keeping.keeper import prompts as keeper_prompts
from langchain_workingmem.keeping.values import Values, changes, seed
from langchain_workingmem.models import FileHit, Observation, Outdated, RecallResult, StoredMessage
from langchain_workingmem.observations import answers as observer_answers
from langchain_workingmem.observations import prompts
from langchain_workingmem.options import RecallOptions
from langchain_workingmem.recall import authors, hits, outdated, reranking, shown, times
from langchain_workingmem.recall.hits import Fetched, Found
from langchain_workingmem.recall.query import Query
from langchain_workingmem.recall.ranking import Floor, Ranked
from langchain_workingmem.recall.shown import Sizes
from langchain_workingmem.working_memory import answers, prompt
from tests.helpers.observed import Noted

Recipe: TypeAlias = Callable[[str], object]

AT = datetime(2026, 5, 17, tzinfo=UTC)
HALF = "\n- **Location**: Rome\n"
ANY: dict[str, Any] = {"type": "object"}
FACTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "by": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


class Facts(BaseModel):
    """A schema with fields of every kind that a text can fill."""

    model_config = ConfigDict(extra="allow")
    facts: list[str] = []
    by: dict[str, str] = {}


TYPED = schemas.TypeSchema(Facts)
LOOSE = schemas.JsonSchema(FACTS)
MARKDOWN = formats.TextFormat(formats.DEFAULT_TEMPLATE)
NOTES = formats.TextFormat("")
FIELDS = formats.JsonFormat(TYPED)
WHOLE = formats.JsonFormat(TYPED, "replace")
KEYS = Keys()
SHELF = StoreState(KEYS, Vectors(dims=2), is_ready=True, dims=2)
OPTIONS = RecallOptions()


def parts(text: str, size: int = 8) -> list[str]:
    """Cut a text into many, as keys or items of something."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def fields(text: str) -> dict[str, Any]:
    return {f"{at}{part}": part for at, part in enumerate(parts(text))}


def document(text: str) -> dict[str, Any]:
    """Put a text into an object: whole, in pieces, and as names."""
    third = len(text) // 3
    return {"facts": [text[:third], *parts(text[third : 2 * third])], "by": fields(text[2 * third :])}


HEADS = {"image/png": b"\x89PNG\r\n\x1a\n", "audio/wav": b"RIFF    WAVE", "application/pdf": b"%PDF-", "video/mp4": b""}


def with_media(text: str) -> object:
    """Take media that a text fills out of a message, and put them back."""
    content: list[Any] = [{"type": "text", "text": text}]
    for mime, head in HEADS.items():
        data, kind = b64encode(head + text.encode(errors="replace")).decode(), mime.partition("/")[0]
        block = {"type": kind if kind in {"image", "audio", "video"} else "file", "mime_type": mime, "name": text}
        content += [
            {**block, "base64": data},
            {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}},
        ]
    message = HumanMessage([*content, {"type": "tool_result", "content": content}], additional_kwargs={"about": text})
    references, found = media.cut(vars(message))
    _, kept = media.split_media(stored := b"{}" + media.reference_list(references))
    media.refer(message, kept, "")
    media.put_back(message, {digest: media.encoded(raw) for digest, raw in found})
    return media.digests_in(stored), blocks.has_media(message), blocks.named_media(content), blocks.short_words(message)


def written(text: str) -> str:
    return json.dumps(document(unicode.to_utf8(text)), ensure_ascii=False)


def edited(text: str) -> str:
    """Change a text in many places, one in every thirty lines or so."""
    return "\n".join(f"{line}!" if at % 30 == 7 else line for at, line in enumerate(text.split("\n")))


def other(text: str) -> str:
    """Change each line of a text."""
    return "\n".join(f"{line}?" for line in text.split("\n"))


def refused(call: Callable[[], object]) -> object:
    """Do what may be refused: that takes its time as well."""
    try:
        return call()
    except WorkingMemoryValidationError as error:
        return str(error)


def refused_filter(wanted: Any) -> object:
    try:
        return Filter.of(wanted)
    except OptionError as error:
        return str(error)


def search_cursor(text: str) -> object:
    try:
        return search.read_cursor(f"1,{text}", re.compile(r"(\d{1,16}),([\w.~%-]{1,1536})", re.ASCII))
    except OptionError as error:
        return str(error)


def pairs(text: str) -> list[tuple[str, str]]:
    """Give two changes of a text, here and there, everywhere, and with one long change on one side."""
    some, every, back = edited(text), other(text), text[::-1]
    return [(some, f"{text}!"), (some, every), (every, some), (back, some), (back, every)]


def merged(text: str, current: str, sent: str) -> object:
    return refused(lambda: threeway.merge_text(text, current, sent))


def driven(plan: Any) -> object:
    """Run a plan up to what it sends."""
    try:
        effect = next(plan)
        while not hasattr(effect, "commands"):
            effect = plan.send(np.ones((1, 2), dtype="f4"))
    except StopIteration as done:
        return done.value
    else:
        return effect
    finally:
        plan.close()


def row(text: str, at: int = 1) -> StoredMessage:
    message = HumanMessage(text, id=str(at)) if at % 2 else AIMessage(text, id=str(at))
    return StoredMessage(message=message, thread_id="t", seq=at, stored_at=AT)


def recalled(text: str) -> RecallResult:
    half = len(text) // 2
    pieces = parts(text[half:], 500)
    return RecallResult(rows=[row(text[:half], 1), *map(row, pieces, range(2, len(pieces) + 2))])


def asked(text: str, **arguments: Any) -> Query:
    return Query.of_turn(OPTIONS, text, "t", "u", arguments)


def fetched(text: str) -> Fetched:
    """Give a message that holds all of a text, and one on each side."""
    return Fetched(
        titles={b"t": "title"},
        found={(b"t", 1), (b"t", 2)},
        rows={(b"t", at): row(text, at) for at in (1, 2, 3)},
        said={(b"t", at): (b"t", at) for at in (1, 2, 3)},
        ranks={(b"t", at): at for at in (1, 2, 3)},
        observations={(b"t", 2): observation(text)},
    )


def observation(text: str) -> Observation:
    positions = (("t", 2), ("t", 3))
    return Observation(id="1", text=text, said_at=AT, priority="normal", sources=[("t", "2")], positions=positions)


def ranked(chunk: int = 0) -> Ranked:
    return Ranked(b"t", 2, 100, 0.9, 0.9, worded=True, chunk=chunk)


def log(text: str) -> list[Noted]:
    """Make a log of a text: half of it in one observation, the rest in short ones, and none of them rendered yet."""
    observed._rendered.cache_clear()
    half = len(text) // 2
    return [Noted(text[:half], AT), *(Noted(part, AT) for part in parts(text[half:], 200))]


def of_user(text: str) -> observed.Kept[Noted]:
    """Make a log whose lines come from many conversations, with parts of the text as titles."""
    lines = observed.Kept(replace(one, sources=[(str(at), "m")]) for at, one in enumerate(log(text)))
    lines.titles = {str(at): one.text for at, one in enumerate(lines)}
    return lines


def traffic(text: str) -> list[StoredMessage]:
    """Give a call of a tool with a text in its arguments, its result, and messages with many parts and many tools."""
    third = len(text) // 3
    call = AIMessage("", tool_calls=[{"name": text[:20], "args": document(text[:third]), "id": "1"}])
    result = ToolMessage(text[third : 2 * third], tool_call_id="1", status="error")
    files = [{"type": "file", "filename": part} for part in parts(text[2 * third :], 50)]
    chosen = (call, result, HumanMessage(list[str | dict[Any, Any]](files), name=text[:20]))
    rows = [StoredMessage(message=one, thread_id="t", seq=at, stored_at=AT) for at, one in enumerate(chosen)]
    return [*rows, *(row(part) for part in parts(text, 200))]


def answered(text: str) -> list[object]:
    """Read a text as answers of every kind: lines, numbers, brackets, words before and after, and thoughts."""
    lines = "\n".join(f"- [{at % 9 + 1}] {part}" for at, part in enumerate(parts(text, 40)))
    given = (
        f"- [1] long {text}",
        text,
        f"- [1] {text}",
        f"- [{text}] x",
        f"[{text}",
        lines,
        f"- [1] a\n  {text}",
        f"{text}\n- [1] a",
        f"- (1) {text}\n- {text} [1]",
        text[::-1],
    )
    found: list[object] = []
    for at, one in enumerate(given):
        try:
            found.append(observer_answers.read_answer(AIMessage(one), 9, 10**9 if at else 1))
        except observer_answers.BadAnswer as error:
            found.append(error.objection)
    return found


def kept_answers(text: str) -> object:
    """Read a text where a keeper answers, inside and outside of JSON."""
    operation = {"op": "set", "path": "/a", "value": {"b": [text]}, "messages": [1]}
    given = (
        text,
        f"[{text}",
        f"{{{text}",
        json.dumps([operation], ensure_ascii=False),
        f"[NaN]{text}\n# Operations\n{text}",
        f"- [1] a\n{text}",
    )
    count = 0
    for one in given:
        count += len(keeper_answers.split_answer(one)[0])
        try:
            count += len(keeper_answers.read_operations(AIMessage(one)).operations)
        except observer_answers.BadAnswer as error:
            count += len(error.objection)
    return count


def kept_document(text: str) -> object:
    form = formats.TextFormat(text)
    json_form = formats.JsonFormat(schemas.schema_of({"type": "object"}))
    claims = seed(json_form, schemas.dump({"a": text}), 1)[0]
    values = Values({one.id: one for one in claims})
    given = form if len(text) % 3 else json_form
    return keeper_prompts.shown_document(given, values, text)


def hit(chunk: int = 0) -> Found:
    return Found(ranked(chunk), (b"t", 2))


def observed_hit() -> Found:
    """Give a hit that was found by an observation."""
    return Found(ranked()._replace(observation=b"o1"), (b"t", 2))


def sizes(text: str) -> Sizes:
    return Sizes(asked("dog", max_tokens=500), fetched(text))


class Reversing(BaseDocumentCompressor):
    """A reranker that turns the order round."""

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return documents[::-1]


def reordered(text: str) -> object:
    """Run the plan of a reranker, for documents and for hits, up to the last step and through it."""
    found = []
    for reranker in (Reversing(), lambda _, hits: hits):
        options = RecallOptions(reranker=reranker, chunk_tokens=50)
        for query in (asked(text), asked(text, max_tokens=500)):
            plan: Any = reranking.rerank(options, query, [hit()], fetched(text))
            with suppress(StopIteration):
                found.append(plan.send(next(plan).items))
    return found


def reply(text: str) -> dict[bytes, Any]:
    """Give what the server sends when it has found as much as a text."""
    values = [{b"text": part.encode(errors="replace")} for part in parts(text, 100)]
    return {
        b"total_results": len(values),
        b"results": [{b"id": b"k", b"score": b"1", b"extra_attributes": one} for one in values],
    }


def crowd(text: str) -> list[str]:
    """Give authors as a resource has them, and one with a name as long as names may be."""
    return ["ann", "ann%20lee", "", keys.author_tag(unicode.to_utf8(text))]


def kept_after(form: formats.Format, *texts: str) -> Values:
    """Write documents one after the other, each by a message of its own, and keep their values."""
    kept = Values()
    for at, text in enumerate(texts, 1):
        sources = (Source("t", f"m{at}", at, at),)
        claims, layout = changes(form, kept, text, said_at=at, recorded_at=at, origin="tool", sources=sources)
        kept = Values(kept.adding(claims, 20).claims, layout)
    return kept


def kept_values(form: formats.Format, *texts: str) -> object:
    """Do all that is done with the values of documents that follow each other."""
    kept = kept_after(form, *texts)
    stored = [read_claim(write_claim(one)) for one in kept.claims.values()]
    hidden = replace(kept, hidden=frozenset({("t", 1)}))
    some = [kept.history(path) for path in kept.present(form)]
    fewer = kept.adding(kept.claims.values(), 2).without("t", ((1, 1),))
    return (
        kept.render(form),
        stored,
        hidden.render(form),
        some,
        kept.at(1),
        kept.paths,
        kept.ended(form),
        fewer.render(form),
    )


OPEN = formats.JsonFormat(schemas.JsonSchema(ANY))
ITEM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string", "key": True}, "about": {}}}
ITEMS = formats.JsonFormat(
    schemas.JsonSchema({"type": "object", "properties": {"items": {"type": "array", "items": ITEM}}})
)


def kept_lines(text: str) -> object:
    text = unicode.to_utf8(text)
    return [
        (kept_values(form, text, edited(text), other(text)), [*keeping_lines.starts(form, text)])
        for form in (NOTES, formats.TextFormat(text))
    ]


def kept_fields(text: str) -> object:
    return [kept_values(form, written(text), written(edited(text)[::2]), "", "{}", "") for form in (FIELDS, OPEN)]


def written_items(names: Sequence[str]) -> str:
    return json.dumps({"items": [{"name": name, "about": [name[::-1]]} for name in names]})


def listed_items(text: str) -> object:
    """Add items to lists, change and remove them by their names, and bring a document of another form into this one."""
    text = unicode.to_utf8(text)
    names = parts(text, 40)
    document = written_items(names)
    more = {"items": [{"name": edited(text), "about": text}, *({"name": name, "about": ""} for name in names[:3])]}
    cleared = (f"/items/{names[0]}", f"items.{names[-1]}", f"items.{names[-1][::-1]}", "/items/none/about", "items.0")
    other_forms = (text, document, json.dumps({"facts": text, "by": {text: text}, text[:9]: 1}))
    return (
        refused(lambda: ITEMS.apply(document, more, None, adds=True)),
        [refused(partial(ITEMS.apply, document, {}, None, [one], seen=written_items(names[::-1]))) for one in cleared],
        [foreign.foreign_note(form, one) for form in (ITEMS, FIELDS, MARKDOWN) for one in other_forms],
        foreign.replaced_note(ITEMS, document, 3, is_kept=True),
        [refused(partial(foreign.replaced_fields, FIELDS, one, {"facts": [text]}, [], text)) for one in other_forms],
        refused(lambda: foreign.replaced_text(MARKDOWN, document, text, text)),
    )


def kept_operations(text: str) -> object:
    """Check operations of every kind, with a text in their values and names, on a document of it."""
    text = unicode.to_utf8(text)
    given = {1: Given(Source("t", "m1", 1, 9), "human")}
    operations: list[Any] = [
        {"op": op, "path": path, "value": value, "messages": [1]}
        for op, path, value in (
            ("set", "/facts", parts(text, 40)),
            ("add", "/facts", parts(text[::-1], 40)),
            ("remove", "/facts", parts(text, 40)),
            ("set", "/by", fields(text[::5])),
            ("set", f"/by/{keeping_paths.join('', text[:500])[1:]}", text),
            ("set", f"/{text}", text),
            ("remove", "/by", None),
            ("set", "/items/7/about", text),
            ("set", f"/items/{text}/about", parts(text, 40)),
        )
    ]
    edits = [{"find": text[:100], "replace": other(text), "messages": [1]}] * 2
    return [
        check(form, kept_after(form, one), answer, given, recorded_at=9, max_bytes=10**7)
        for form, one, answer in (
            (FIELDS, written(text[::5]), operations),
            (ITEMS, "", operations),
            (NOTES, text, edits),
        )
    ]


EVERY = search.build_filter()

TIMES = (
    "last week, this year, since May, yesterday, last summer, last weekend, at Christmas, in 2023, between March and May, "
    "two weeks before 3 June, the last few days, on Monday, two hours ago"
)


def phrases(text: str) -> list[time_phrases.Phrase]:
    """Find the times of a question, in the middle of a text."""
    return [*time_phrases.phrases_of(f"{text} {TIMES} {text}")]


RECIPES: dict[str, Recipe] = {
    "working_memory.answers.describe_change": lambda t: (
        answers.describe_change(MARKDOWN, t, edited(t)),
        answers.describe_change(MARKDOWN, t, other(t)),
        answers.describe_change(FIELDS, "{}", written(t)),
    ),
    "working_memory.answers.describe_no_change": lambda t: answers.describe_no_change(dict.fromkeys(fields(t))),
    "working_memory.answers.parse_document": answers.parse_document,
    "_text.chunks.length": chunks.length,
    "_text.chunks.count_tokens": chunks.count_tokens,
    "_text.chunks.keep_ends": lambda t: chunks.keep_ends(t, len(t) // 2),
    "_text.chunks.spans": lambda t: list(chunks.spans(t, 100)),
    "_text.chunks.split": lambda t: chunks.split(t, 100),
    "_text.chunks.chunk_span": lambda t: chunks.chunk_span(t, 100, 10**6),
    "_text.chunks.excerpt": lambda t: (
        chunks.excerpt(t, 25, len(t), len(t)),
        chunks.excerpt(t, 25, 0, len(t), [t[:10].lower(), "a", "b"]),
        chunks.excerpt(t, len(t) // 8, len(t) // 4, len(t), ["a", "b", "0"]),
    ),
    "_documents.diffs.pretty": lambda t: (diffs.pretty(t), diffs.pretty("[" + t), diffs.pretty(written(t))),
    "_documents.diffs.changes": lambda t: (
        diffs.changes(t, edited(t)),
        diffs.changes(t, other(t)),
        diffs.changes(t, t[::-1]),
    ),
    "_documents.formats.TextFormat.apply": lambda t: refused(
        lambda: (NOTES.apply(t, t, "append"), MARKDOWN.apply(t, t, None))
    ),
    "_documents.formats.TextFormat.replace": lambda t: refused(lambda: MARKDOWN.replace(edited(t), t + HALF, t)),
    "_documents.formats.TextFormat.edit": lambda t: (
        refused(lambda: MARKDOWN.edit(t, [(t[: len(t) // 2], "new")])),
        refused(lambda: MARKDOWN.edit(t, [(t[len(t) // 2 :] + "?", "new")])),
        refused(lambda: MARKDOWN.edit(t, [("", "new")])),
    ),
    "_documents.formats.TextFormat.value": MARKDOWN.value,
    "_documents.formats.TextFormat.is_empty": MARKDOWN.is_empty,
    "_documents.formats.JsonFormat.apply": lambda t: (
        refused(lambda: FIELDS.apply(written(t), written(t[::-1]), None)),
        refused(lambda: FIELDS.apply("", t, "append")),
    ),
    "_documents.formats.JsonFormat.replace": lambda t: refused(
        lambda: WHOLE.replace(written(t), written(t + "x"), "{}")
    ),
    "_documents.formats.JsonFormat.absent": lambda t: FIELDS.absent(written(t), ["by.0", t, f"by.{t}"]),
    "_documents.formats.JsonFormat.remark": lambda t: FIELDS.remark({t: t}, [t], written(t), written(t)),
    "_documents.formats.JsonFormat.value": lambda t: refused(lambda: FIELDS.value(written(t))),
    "_documents.formats.JsonFormat.is_empty": FIELDS.is_empty,
    "_documents.values.listed.without": listed_items,
    "_documents.joining.joined": lambda t: [
        refused(partial(joining.joined, *one))
        for one in ((NOTES, t, edited(t)), (FIELDS, written(t), written(edited(t))), (MARKDOWN, t, other(t)))
    ],
    "_documents.merging.shorten": merging.shorten,
    "_documents.merging.parse_json": lambda t: (merging.parse_json(t), merging.parse_json(written(t))),
    "_documents.lines.Lines.get_matching_blocks": lambda t: [
        lines.Lines(t.split("\n"), two.split("\n")).get_matching_blocks() for two in (edited(t), t[::-1])
    ],
    "_documents.lines.unified": lambda t: [
        list(lines.unified(t.split("\n"), two.split("\n"))) for two in (edited(t), t[::-1])
    ],
    "_documents.merging.merge_patch": lambda t: merging.merge_patch(document(t), document(t[::-1])),
    "_documents.merging.append_patch": lambda t: merging.append_patch(document(t), document(t[::-1])),
    "_documents.merging.append_text": lambda t: (merging.append_text(t, t[: len(t) // 2]), merging.append_text(t, "x")),
    "_documents.merging.is_same": lambda t: merging.is_same(document(t), document(t)),
    "_documents.merging.count_leaves": lambda t: merging.count_leaves(document(t), null=False),
    "_documents.merging.paths": lambda t: merging.paths(document(t)),
    "_documents.merging.at_path": lambda t: (
        merging.at_path(document(t), f"by.{t}"),
        merging.at_path(document(t), "a" + "." * len(t)),
    ),
    "_documents.merging.without_paths": lambda t: merging.without_paths(document(t), ["by.0", "facts", t]),
    "_text.names.acceptable_name": names.acceptable_name,
    "_text.nesting.check_depth": lambda t: [
        refused_depth(one) for one in ("[" * 200 + "]" * 200 + t, "[]" * 200 + t, "[]" * 200 + json.dumps(t))
    ],
    "_text.nesting.json_leaves": lambda t: list(nesting.json_leaves(document(t))),
    "_text.nesting.shown": nesting.shown,
    "_text.nesting.as_json": lambda t: nesting.as_json(document(t)),
    "_text.nesting.check_nesting": lambda t: nesting.check_nesting(document(t)),
    "_documents.padding.without_padding": lambda t: (
        padding.without_padding(document(t), FACTS),
        padding.without_padding({"facts": [one for part in parts(t) for one in (None, part)]}, FACTS),
    ),
    "_documents.padding.without_strays": lambda t: padding.without_strays(document(t), FACTS),
    "_documents.padding.every_part": lambda t: list(
        padding.every_part([{**FACTS, "anyOf": [{"title": part} for part in parts(t)]}], FACTS, set())
    ),
    "_documents.padding.pointed": lambda t: padding.pointed(f"#/properties/{t}", FACTS),
    "_text.observed.observed_text": lambda t: observed.observed_text(log(t)) + observed.observed_text(of_user(t)),
    "_text.observed.tokens_of": lambda t: observed.tokens_of(log(t)),
    "observations.prompts.log_block": lambda t: prompts.log_block(log(t), t),
    "observations.answers.read_answer": answered,
    "observations.prompts.newest": lambda t: prompts.newest(log(t)),
    "observations.prompts.observer_messages": lambda t: (
        prompts.observer_messages([row(t, 1), *traffic(t)], log(t), t, 10**9),
        prompts.observer_messages([row(t, 1)], log(t), t, 10**9, media=[(1, {"type": "image", "url": t, "name": t})]),
        prompts.observer_messages([row(t, 1), *traffic(t)], log(t), t, len(t) // 16),
    ),
    "observations.prompts.escaped": prompts.escaped,
    "observations.prompts.shown_messages": lambda t: prompts.shown_messages(
        [row(t, 1)], 10**9, [row(t, 2)], [row(t, 3)]
    ),
    "observations.prompts.with_instructions": lambda t: prompts.with_instructions(t, t),
    "observations.answers.check_end": lambda t: observer_answers.check_end(
        AIMessage("", response_metadata={"status": f"ok {t}"}), 9
    ),
    "keeping.keeper.answers.operations_in": keeper_answers.operations_in,
    "keeping.keeper.answers.read_operations": kept_answers,
    "keeping.keeper.answers.split_answer": keeper_answers.split_answer,
    "keeping.keeper.answers.with_paths": lambda t: keeper_answers.with_paths([{"find": t}, {"path": t}], {1: t}),
    "keeping.keeper.prompts.keeper_rules": lambda t: keeper_prompts.keeper_rules(
        formats.TextFormat(t), "thread", t, ("human",), beside=len(t) % 2 == 0
    ),
    "keeping.keeper.prompts.shown_document": kept_document,
    "observations.prompts.reflector_messages": lambda t: prompts.reflector_messages(log(t), t, 100),
    "observations.prompts.with_objection": lambda t: prompts.with_objection([], AIMessage(t), t),
    "_text.rendering.unescape": lambda t: (rendering.unescape(t), rendering.unescape(document(t))),
    "_documents.media.cut": with_media,
    "_text.rendering.message_text": lambda t: rendering.message_text(
        AIMessage(t, tool_calls=[{"name": "f", "args": document(t), "id": "1"}])
    ),
    "_text.rendering.words_in": lambda t: rendering.words_in(
        HumanMessage([{"type": "text", "text": one} for one in parts(t)])
    ),
    "_text.rendering.files_block": lambda t: rendering.files_block(
        [
            FileHit(path=f"/{part}", first_line=1, last_line=2, text=part, revision=1, score=1.0, similarity=1.0)
            for part in parts(t)
        ]
    ),
    "_text.rendering.line": lambda t: rendering.line(HumanMessage(t, name=t)),
    "_text.rendering.conversation": lambda t: rendering.conversation(t, [(AT, HumanMessage(t, name=t)), None]),
    "_text.rendering.dated": lambda t: rendering.dated(Outdated(text=t, since=AT, thread_id=None, message_id=None)),
    "_text.rendering.conversations": lambda t: rendering.conversations(recalled(t)),
    "_text.rendering.today_block": lambda t: rendering.today_block(AT, None, t),
    "_text.rendering.recalled_block": lambda t: rendering.recalled_block(recalled(t), "t", "x"),
    "working_memory.prompt.render_working_memory": lambda t: (
        prompt.render_working_memory(MARKDOWN, t, "resource", update="update", name="x"),
        prompt.render_working_memory(FIELDS, t, "thread", update=None),
        prompt.render_working_memory(FIELDS, t, "thread", update="update"),
        prompt.render_working_memory(
            FIELDS, t, "thread", update=None, starts=tuple((at, at * 86_400_000_000) for at in range(0, len(t), 40))
        ),
    ),
    "_documents.schemas.schema_of": lambda t: schemas.schema_of(
        {"type": "object", "properties": {part: {"description": part} for part in parts(t, 200)}}
    ),
    "_documents.schemas.refusal": lambda t: schemas.refusal(t, t[::-1]),
    "_documents.schemas.TypeSchema.patch": lambda t: TYPED.patch(document(t)),
    "_documents.schemas.TypeSchema.own": lambda t: TYPED.own(document(t)),
    "_documents.schemas.TypeSchema.validate": lambda t: refused(lambda: TYPED.validate(document(unicode.to_utf8(t)))),
    "_documents.schemas.TypeSchema.value": lambda t: refused(
        lambda: TYPED.value({"facts": dict.fromkeys(parts(unicode.to_utf8(t)))})
    ),
    "_documents.schemas.JsonSchema.patch": lambda t: LOOSE.patch(document(t)),
    "_documents.schemas.JsonSchema.own": lambda t: LOOSE.own(document(t)),
    "_documents.schemas.JsonSchema.validate": lambda t: refused(lambda: LOOSE.validate(document(t))),
    "_documents.schemas.JsonSchema.value": lambda t: LOOSE.value(document(t)),
    "_documents.schemas.shape": lambda t: schemas.shape(
        {**FACTS, "properties": dict.fromkeys(fields(t), ANY)}, nullable=True
    ),
    "_documents.schemas.plain": lambda t: (
        refused(lambda: schemas.plain(document(t))),
        refused(lambda: schemas.plain(Facts(facts=parts(t, 40), by=fields(t)))),
    ),
    "_documents.schemas.dump": lambda t: schemas.dump(document(t)),
    "_documents.threeway.merge_text": lambda t: [merged(t, *two) for two in pairs(t)],
    "_documents.threeway.merge_fields": lambda t: refused(
        lambda: threeway.merge_fields(document(t), document(t + "!"), document(t[::-1]))
    ),
    "_text.unicode.to_utf8": unicode.to_utf8,
    "_text.unicode.without_surrogates": lambda t: unicode.without_surrogates(document(t)),
    "_text.unicode.is_utf8": unicode.is_utf8,
    "_text.unicode.replace_hidden": lambda t: unicode.replace_hidden(t, lambda _: "?"),
    "_text.unicode.visible": unicode.visible,
    "_text.unicode.picture": lambda t: [unicode.picture(one) for one in t if one < "\x20"],
    "_text.unicode.stored_quote": lambda t: (
        unicode.stored_quote(f"{t}\x1b", t[:100]),
        unicode.stored_quote(f"{t}\u200b", f"{unicode.visible(t[:100])}?"),
        unicode.stored_quote(f"{t}\u200b", "not there"),
    ),
    "_redis.queries.read_cursor": search_cursor,
    "_redis.queries.pack": lambda t: search.pack(np.ones((len(t) // 8, 8)), "int8", "cosine"),
    "_redis.queries.build_filter": lambda t: search.build_filter(
        resource_id="u", not_thread_ids=parts(unicode.to_utf8(t)), metadata="@labels:{a}"
    ),
    "_redis.queries.vector_search": lambda t: search.vector_search("i", t.encode(errors="replace"), EVERY, 5, ["a"]),
    "_redis.queries.words_of": search.words_of,
    "_redis.queries.word_search": lambda t: search.word_search("i", t, EVERY, 5),
    "_redis.queries.aggregate": lambda t: search.aggregate(
        "i", search.build_filter(not_thread_ids=parts(unicode.to_utf8(t))), *parts(t)
    ),
    "_redis.queries.total_of": lambda t: search.total_of(reply(t)),
    "_redis.queries.sorted_search": lambda t: search.sorted_search(
        "i", search.build_filter(not_thread_ids=parts(unicode.to_utf8(t))), "at", limit=5, after=(1, t), fields=parts(t)
    ),
    "_redis.queries.columns": lambda t: search.columns(reply(t), "score"),
    "_redis.queries.rows_of": lambda t: search.rows_of(reply(t)),
    "_redis.queries.similarities": lambda t: search.similarities(np.zeros(len(t)), "l2"),
    "_redis.queries.numbers": lambda t: search.numbers([b"#0.5"] * (len(t) // 8)),
    "_redis.queries.is_stale": lambda t: search.is_stale(RedisReplyError(t)),
    "items.searches.search": lambda t: (
        driven(item_searches.search(SHELF, SearchOp((t,), query=t), Filter.of(None))),
        driven(item_searches.search(SHELF, SearchOp((t,)), Filter.of({"a": t}))),
    ),
    "items.searches.namespaces": lambda t: driven(
        item_searches.namespaces(SHELF, ListNamespacesOp((MatchCondition("prefix", tuple(parts(t))),)))
    ),
    "_documents.filters.Filter.of": lambda t: (
        Filter.of(fields(t)),
        Filter.of({"$or": [{one: 1} for one in ("x", *parts(t)) if one[:1] != "$"]}),
        *(
            refused_filter(one)
            for one in ({t: object()}, {"$and": t}, {"$not": t}, {f"${t}": 1}, {"a": {"$gt": [t]}}, {"a": {f"${t}": 1}})
        ),
    ),
    "_documents.filters.Filter.matches": lambda t: (
        Filter.of({f"a{t}": t}).matches(document(t)),
        Filter.of(document(t)).matches(document(t)),
        Filter.of({"facts": {"$gt": t}}).matches({"facts": t}),
        Filter.of({"facts": {"$in": parts(t)}}).matches({"facts": t}),
    ),
    "items.filters.labels": lambda t: (
        list(filters.labels(document(t))),
        list(filters.labels({t[: len(t) // 2]: fields(t[len(t) // 2 :])})),
    ),
    "recall.authors.Authors.note": lambda t: authors.Authors().note("u", set(crowd(t))),
    "recall.authors.named": lambda t: authors.named(t, crowd(t)),
    "recall.authors.in_first_person": lambda t: authors.in_first_person(t, crowd(t)),
    "recall.authors.put_to": lambda t: authors.put_to(t, crowd(t)),
    "recall.authors.without": lambda t: authors.without(t, crowd(t)),
    "recall.times.named_times": lambda t: [times.named_times(f"{t} {time}", AT) for time in TIMES.split(", ")],
    "_text.telling.words.words_of": words.words_of,
    "_text.telling.words.as_searched": telling.as_searched,
    "_text.telling.words.telling_words": telling.telling_words,
    "_text.telling.words.language_of": lambda t: telling.language_of(t.split()),
    "_text.telling.kinds.is_order": telling.is_order,
    "_text.telling.kinds.is_thanks": telling.is_thanks,
    "_text.telling.kinds.asks_about_you": lambda t: telling.asks_about_you(f"{t}. How was Monday?"),
    "_text.telling.words.is_question": telling.is_question,
    "_text.telling.words.count_shared": lambda t: telling.count_shared(telling.telling_words(t)[:9], t),
    "_text.telling.words.goes_on": telling.goes_on,
    "_text.time_phrases.may_name_a_time": time_phrases.may_name_a_time,
    "_text.time_phrases.phrases_of": phrases,
    "_text.time_phrases.Phrase.value": lambda t: [one.value("mwu") for one in phrases(t)],
    "_text.time_phrases.Phrase.word": lambda t: [one.word("mwu") for one in phrases(t)],
    "_text.time_phrases.Phrase.has": lambda t: [one.has("last") for one in phrases(t)],
    "_text.time_phrases.Phrase.split": lambda t: [one.split("c") for one in phrases(t) if one.kind == "between"],
    "_text.time_phrases.Phrase.is_trailing": lambda t: [one.is_trailing() for one in phrases(t)],
    "_text.time_phrases.Phrase.is_since": lambda t: [one.is_since() for one in phrases(t)],
    "_text.time_phrases.Phrase.is_open": lambda t: [one.is_open() for one in phrases(t)],
    "_text.time_phrases.Phrase.is_meant": lambda t: [one.is_meant() for one in phrases(t)],
    "recall.hits.hits_of": lambda t: hits.hits_of(
        asked(t), [ranked(), ranked()._replace(seq=1)], fetched(t), lambda _: True
    ),
    "recall.hits.Fetched.content": lambda t: fetched(t).content(hit().position),
    "recall.hits.Gate.of": lambda t: hits.Gate.of(t, None, None),
    "recall.hits.Gate.admits_text": lambda t: hits.Gate.of(t, None, None).admits_text(t, 0.5),
    "recall.hits.Gate.shares_enough": lambda t: hits.Gate.of(t, None, None).shares_enough(t, 0.5),
    "recall.hits.Gate.admits": lambda t: [
        hits.Gate.of(question, Floor(0.2, 0.3), 0.1).admits(one, fetched(t), len(t))
        for question in (t, f"{t}?", f"sort {t}")
        for one in (hit(), observed_hit())
    ],
    "recall.shown.result_of": lambda t: (
        shown.result_of(asked(t), [hit()], fetched(t), 10**6, [ranked()]),
        shown.result_of(asked("a b dog", max_tokens=100), [hit(10**6)], fetched(t * 4), 100, [ranked()]),
    ),
    "recall.shown.as_hit": lambda t: [
        shown.as_hit(one, fetched(t), [(b"t", 1)], [(b"t", 3)]) for one in (hit(), observed_hit())
    ],
    "recall.shown.cut": lambda t: shown.cut(row(t).message, "t", 50, (0, len(t)), ["a", "b"]),
    "recall.shown.best_span": lambda t: shown.best_span(hit(10**6), row(t).message, 100),
    "recall.reranking.rerank": reordered,
    "recall.outdated.changes_in": outdated.changes_in,
    "recall.outdated.outdates": lambda t: [
        outdated.outdates(f"{t}. I {new}, {t}", f"{t}. I {old}, {t}")
        for new, old in (("now live", "live"), ("no longer live", "live"), ("now have 5 cats", "have 4 cats"))
    ],
    "recall.outdated.spares_of": lambda t: outdated.spares_of(asked(t), [ranked()] * len(parts(t)), [ranked()]),
    "recall.outdated.prevailing": lambda t: outdated.prevailing(
        asked(t), [Found(ranked()._replace(seq=at), (b"t", at)) for at in (1, 3)], fetched(f"I now live. {t}")
    ),
    "recall.outdated.read_marks": lambda t: outdated.read_marks(
        [json.dumps([["t", "m1", one, 1, None, None] for one in parts(t)]).encode()], fetched(t).rows
    ),
    "recall.hits.Fetched.leave_out": lambda t: fetched(t).leave_out([(b"t", 1)] * len(parts(t))),
    "recall.hits.repeating": lambda t: hits.repeating([ranked()], asked(t)),
    "recall.hits.is_crowded": lambda t: hits.is_crowded([ranked()] * len(parts(t)), asked(t)),
    "recall.hits.picked": lambda t: hits.picked([ranked()] * len(parts(t)), asked(t)),
    "recall.hits.most_of": lambda t: hits.most_of(asked(t)),
    "recall.hits.Fetched.window": lambda t: fetched(t).window((b"t", 2), 1, 1),
    "recall.hits.Fetched.sources": lambda t: fetched(t).sources((b"t", 2)),
    "recall.hits.Found.window": lambda t: [one.window(asked(t), fetched(t)) for one in (hit(), observed_hit())],
    "recall.shown.fits": lambda t: shown.fits(asked(t, max_tokens=500), fetched(t)),
    "recall.shown.sized": lambda t: [
        shown.sized(asked(t, max_tokens=500), [one], fetched(t), [ranked()]) for one in (hit(), observed_hit())
    ],
    "recall.hits.Fetched.answer_to": lambda t: fetched(t).answer_to((b"t", 1)),
    "recall.shown.Sizes.tokens": lambda t: sizes(t).tokens((b"t", 1)),
    "recall.shown.Sizes.most": lambda t: sizes(t).most((b"t", 1)),
    "recall.shown.Sizes.least": lambda t: sizes(t).least((b"t", 1)),
    "recall.shown.Sizes.take": lambda t: (one := sizes(t)).take((b"t", 2), one.least, as_hit=True),
    "_documents.metadata.canonical_json": lambda t: metadata.canonical_json(document(t), t),
    "_documents.metadata.check_key": lambda t: metadata.check_key(unicode.to_utf8(t)),
    "_documents.metadata.label": lambda t: metadata.label("k", t),
    "_documents.metadata.presence_label": lambda t: metadata.presence_label(unicode.to_utf8(t)),
    "_documents.metadata.labels_of": lambda t: [metadata.labels_of((unicode.to_utf8(t),), one) for one in (t, 1, [t])],
    "_documents.metadata.metadata_filter": lambda t: metadata.metadata_filter({f"a{unicode.to_utf8(t)}": t}),
    "_documents.metadata.metadata_in": lambda t: metadata.metadata_in({b"metadata:k": json.dumps(t).encode()}),
    "_documents.filters.Filter.condition": lambda t: (
        Filter.of(fields(t)).condition(filters.labels_of),
        Filter.of({"a": fields(t)}).condition(filters.labels_of),
        Filter.of({"a.b": t, f"a{t}": 1, "c": {"$ne": parts(t), "$gt": t}}).condition(filters.labels_of),
    ),
    "_documents.filters.Filter.apart": lambda t: Filter.of(fields(t)).apart(fields(t)),
    "_documents.filters.Filter.conjuncts": lambda t: sum(
        1 for _ in Filter.of({"$and": [fields(t), fields(t)]}).conjuncts()
    ),
    "_documents.filters.both": lambda t: json_filters.both(fields(t), fields(t)),
    "_documents.filters.top_of": json_filters.top_of,
    "_documents.filters.is_named": lambda t: json_filters.is_named(t, fields(t)),
    "_documents.filters.is_equality": lambda t: json_filters.is_equality(t, document(t)),
    "_documents.filters.labelled": lambda t: json_filters.labelled(parts(t)),
    "keeping.lines.read": kept_lines,
    "keeping.fields.read": kept_fields,
    "keeping.checking.check": kept_operations,
    "items.filters.labels_of": lambda t: filters.labels_of((t, *parts(t)), t),
}

# What is given no text, and nothing that grows with one.
WITHOUT_TEXT = {
    "_documents.values.fanning._dicts",  # of a schema
    "recall.authors.are_several",
    "recall.outdated._words",
    "recall.outdated.marks_of",
    *(
        f"_text.ranges.{name}"
        for name in (
            "contains",
            "join_ranges",
            "numbers_in",
            "parse_ranges",
            "ranges_of",
            "after",
            "removed_positions",
            "write_ranges",
        )
    ),
    # the recipes of `keeping` run through these
    *(
        f"keeping.{module}.{name}"
        for module, names in {
            "bounds": ("bounded",),
            "checking": ("problems",),
            "claims": ("Claim.only", "Source.is_in", "read_claim", "write_claim"),
            "fields": ("flatten", "write"),
            "lines": ("starts", "write"),
            "operations": ("applied", "changed", "edited"),
            "timeline": ("Event.is_same", "Timeline.emptied", "Timeline.spans", "as_text", "said"),
            "values": (
                *("Values.adding", "Values.at", "Values.ended", "Values.history", "Values.present", "Values.render"),
                *("Values.without", "changes", "differences", "read", "seed"),
            ),
        }.items()
        for name in names
    ),
    "_redis.queries._tags",
    "_redis.queries.built_as",
    "working_memory.prompt.update_rules",
    "working_memory.prompt.working_memory_block",  # calls render_working_memory
    "_redis.queries.threads_schema",
    "_redis.queries.vectors_schema",
    "_redis.queries.items_schema",
    "_redis.queries.item_vectors_schema",
    "_redis.queries.files_schema",
    "_redis.queries._sorted",
    "_redis.queries._vector",
    "_redis.queries.create_index",
    "_redis.queries.count_search",
    "recall.times.nearness",
    "_text.observed.in_zone",
    "_text.observed.to_minute",
    "recall.shown.Sizes.share_out",
    "recall.hits._Covered.holds",
    "recall.hits.best_of",
    "recall.reranking.ordered",
    "items.searches._best",
    "items.searches._count",
    "items.searches._fits",
    "_documents.schemas._too_large",
    "_documents.schemas._is_set",
}


def refused_depth(text: str) -> object:
    try:
        return nesting.check_depth(text)
    except ValueError as error:
        return str(error)
