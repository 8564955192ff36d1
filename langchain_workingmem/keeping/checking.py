"""Check what a keeper answers: each operation alone, against the document, its schema and the messages. Pure functions.

What fails is left out, with the reason; the others become claims. A keeper reads what anybody wrote, so nothing in its answer is
trusted: no path leads out of the schema, and no operation cites what the keeper was not given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.keeping import fields
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.operations import Refused, applied, changed, edited
from langchain_workingmem.keeping.paths import digest
from langchain_workingmem.keeping.values import differences, read

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.keeping.operations import Change, Reason
    from langchain_workingmem.keeping.values import Values

MOST = 200  # operations of one answer; more are a mistake or an attack
MOST_CITED = 200  # messages that one operation cites
FEW = 2  # values: so many at least must go before an answer is said to empty the document
MOST_PARTS = 10_000  # of one operation: with more of them its claims would come among those of the next


class Given(NamedTuple):
    """A message that a keeper was given."""

    source: Source  # with the time when it was said
    author: str  # "human", "ai", "tool" or "system"


@dataclass(frozen=True, slots=True)
class Checked:
    """What is left of an answer."""

    claims: tuple[Claim, ...] = ()
    layout: tuple[str, ...] | None = None  # of a text; None: it stays
    left_out: Mapping[Reason, int] = field(default_factory=dict)
    # Stands for what would be gone, where fewer than half of the values would be left; "" elsewhere. Another answer that takes the
    # same away has the same. It holds no words.
    emptied: str = ""


class _Cited(NamedTuple):
    """An operation, and the messages behind it."""

    order: int
    operation: Mapping[str, Any]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A document as if all that was taken had been said last."""

    values: Mapping[str, Any]  # by path
    text: str
    claims: tuple[Claim, ...] = ()


def check(
    form: Format,
    values: Values,
    operations: Sequence[Any],
    messages: Mapping[int, Given],
    *,
    recorded_at: int,
    trust: Sequence[str] = ("human", "tool"),
    max_bytes: int = 65536,
) -> Checked:
    """Return the claims of the operations that hold, and count the others by reason.

    An operation counts as said when the newest message was said that it cites and that is trusted; only such are its sources. It is
    tried on the document as it is; one that holds only after, or together with, others is taken with them.
    """
    left_out: Counter[Reason] = Counter()
    cited: list[_Cited] = []
    for order, operation in enumerate(operations[:MOST]):
        try:
            cited.append(_Cited(order, *_sourced(operation, messages, frozenset(trust))))
        except Refused as refused:
            left_out[refused.reason] += 1
    left_out["more"] += len(operations[MOST:])
    checks = _Checks(form, values, recorded_at, max_bytes)
    claims, layout = checks.take(cited, left_out)
    return Checked(claims, layout, dict(+left_out), checks.emptied(claims))


def problems(form: Format, text: str) -> frozenset[str]:
    """Return the fields of a document that its schema refuses; a deletion may leave such, and a change may not add any."""
    if not isinstance(form, JsonFormat) or not text:
        return frozenset()
    document = parse_json(text)
    if not isinstance(document, dict):
        return frozenset([""])
    try:
        form.schema.validate(document)
    except WorkingMemoryValidationError as error:
        return frozenset(error.fields or ("",))
    return frozenset()


def _sourced(
    operation: Any, messages: Mapping[int, Given], trust: frozenset[str]
) -> tuple[Mapping[str, Any], tuple[Source, ...]]:
    if not isinstance(operation, Mapping):
        raise Refused("operation")
    given = operation.get("messages")
    numbers: Sequence[Any] = given if isinstance(given, list | tuple) else ()
    is_known = all(isinstance(one, int) and not isinstance(one, bool) and one in messages for one in numbers)
    if not 0 < len(numbers) <= MOST_CITED or not is_known:
        raise Refused("messages")
    sources = tuple(messages[one].source for one in sorted({*numbers}) if messages[one].author in trust)
    if not sources:
        raise Refused("author")
    return operation, sources


class _Checks:
    """The checks of one answer."""

    def __init__(self, form: Format, values: Values, recorded_at: int, max_bytes: int) -> None:
        self.form, self.values, self.recorded_at = form, values, recorded_at
        self.text = values.render(form)
        self.known = problems(form, self.text)
        self.most = max(max_bytes, len(self.text.encode()))

    def take(
        self, cited: Sequence[_Cited], left_out: Counter[Reason]
    ) -> tuple[tuple[Claim, ...], tuple[str, ...] | None]:
        """Return the claims, and the layout of a text, of those operations that hold."""
        draft = _Draft(read(self.form, self.text)[0], self.text)
        try:
            draft = self._together(draft, cited)
        except Refused:
            draft = self._one_by_one(draft, cited, left_out)
        layout = None if isinstance(self.form, JsonFormat) or not draft.claims else read(self.form, draft.text)[1]
        if self._holds(draft.claims, layout):
            return draft.claims, layout
        # what was said earlier than what holds may fit the document less well than it did here
        taken: tuple[Claim, ...] = ()
        for one in cited:
            new = tuple(claim for claim in draft.claims if claim.order // MOST_PARTS == one.order)
            if new and self._holds((*taken, *new), layout):
                taken += new
            elif new:
                left_out["value"] += 1
        return taken, layout

    def emptied(self, claims: tuple[Claim, ...]) -> str:
        before = self.values.present(self.form)
        after = self._with(claims).present(self.form)
        if len(before) - len(after) < FEW or 2 * len(after) >= len(before):
            return ""
        return digest("\n".join(sorted(before.keys() - after.keys())))

    def _with(self, claims: tuple[Claim, ...], layout: tuple[str, ...] | None = None) -> Values:
        layout = self.values.layout if layout is None else layout
        return replace(self.values, claims={**self.values.claims, **{one.id: one for one in claims}}, layout=layout)

    def _holds(self, claims: tuple[Claim, ...], layout: tuple[str, ...] | None) -> bool:
        text = self._with(claims, layout).render(self.form)
        return len(text.encode()) <= self.most and problems(self.form, text) <= self.known

    def _one_by_one(self, draft: _Draft, cited: Sequence[_Cited], left_out: Counter[Reason]) -> _Draft:
        """Take each that holds, again and again while one more does; at last what holds only together."""
        waiting: dict[int, Reason] = {one.order: "value" for one in cited}
        while True:
            taken = False
            for one in cited:
                if one.order in waiting:
                    try:
                        draft = self._together(draft, [one])
                    except Refused as refused:
                        waiting[one.order] = refused.reason
                    else:
                        del waiting[one.order]
                        taken = True
            if not taken:
                break
        try:
            draft = self._together(draft, [one for one in cited if waiting.get(one.order) == "value"])
        except Refused:
            left_out.update(waiting.values())
        else:
            left_out.update(reason for reason in waiting.values() if reason != "value")
        return draft

    def _together(self, draft: _Draft, cited: Sequence[_Cited]) -> _Draft:
        """Return the draft with operations; raise `Refused` unless each is possible and the document is valid after all."""
        for one in cited:
            draft = self._applied(draft, one)
        text = draft.text
        if isinstance(self.form, JsonFormat):
            text = fields.write(self.form, draft.values, ())[0]
            draft = replace(draft, text=text)
        if len(text.encode()) > self.most:
            raise Refused("size")
        if not problems(self.form, text) <= self.known:
            raise Refused("value")
        return draft

    def _applied(self, draft: _Draft, one: _Cited) -> _Draft:
        if isinstance(self.form, JsonFormat):
            changes = changed(self.form, draft.values, one.operation)
            values, text = applied(self.form, draft.values, changes), draft.text
        else:
            text = edited(self.form, draft.text, one.operation)
            values = read(self.form, text)[0]
            changes = differences(self.form, draft.values, values)
        return _Draft(values, text, (*draft.claims, *self._claims(one, changes)))

    def _claims(self, one: _Cited, changes: Sequence[Change]) -> list[Claim]:
        return [
            Claim(
                path=path,
                value=value,
                is_set=is_set,
                said_at=max(source.said_at for source in one.sources),
                recorded_at=self.recorded_at,
                origin="keeper",
                sources=one.sources,
                order=one.order * MOST_PARTS + at,
                is_line=not isinstance(self.form, JsonFormat),
            )
            for at, (path, value, is_set) in enumerate(changes)
        ]
