"""Check what a keeper answers: each operation alone, against the document, its schema and the messages. Pure functions.

What fails is left out, with the reason; the others become claims. A keeper reads what anybody wrote, so nothing in its answer is
trusted: no path leads out of the schema, and no operation cites what the keeper was not given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.keeping import fields
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.operations import Refused, applied, changed, edited
from langchain_workingmem.keeping.paths import digest, with_above
from langchain_workingmem.keeping.values import differences, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._documents.formats import Format
    from langchain_workingmem.keeping.operations import Change, Reason
    from langchain_workingmem.keeping.values import Values

MOST = 200  # operations of one answer; more are a mistake or an attack
MOST_CITED = 200  # messages that one operation cites
FEW = 2  # values: so many at least must go before an answer is said to empty the document


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

    at: int  # in the answer
    operation: Mapping[str, Any]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A document as if all that was taken had been said last."""

    values: Mapping[str, Any]  # by path
    text: str
    claims: tuple[tuple[Claim, ...], ...] = ()  # of each operation

    @property
    def all_claims(self) -> tuple[Claim, ...]:
        return tuple(chain.from_iterable(self.claims))


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
    for at, operation in enumerate(operations[:MOST]):
        try:
            cited.append(_Cited(at, *_sourced(operation, messages, frozenset(trust))))
        except Refused as refused:
            left_out[refused.reason] += 1
    left_out["more"] += len(operations[MOST:])
    checks = _Checks(form, values, recorded_at, max_bytes)
    claims, layout = checks.take(cited, left_out)
    return Checked(claims, layout, dict(+left_out), checks.emptied(claims))


def problems(form: Format, text: str) -> frozenset[str]:
    """Return the fields of a document that its schema refuses; a deletion may leave such, and a change may not add any."""
    return _problems(form, text or None)


def _problems(form: Format, text: str | None) -> frozenset[str]:
    if not isinstance(form, JsonFormat) or text is None:
        return frozenset()
    document = parse_json(text or "{}")
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
            found = self._together(draft, cited)
            draft = found if _are_apart(found.claims) else self._one_by_one(draft, cited, left_out)
        except Refused:
            draft = self._one_by_one(draft, cited, left_out)
        claims = draft.all_claims
        layout = None if isinstance(self.form, JsonFormat) or not claims else read(self.form, draft.text)[1]
        if not self._holds(claims, layout):
            # what was said earlier than what holds may fit the document less well than it did here
            claims = ()
            for new in draft.claims:
                if self._holds((*claims, *new), layout):
                    claims += new
                else:
                    left_out["value"] += 1
        return claims, layout

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
        """Take each that holds, again and again while one more does; then what holds only together."""
        waiting: dict[int, Reason] = {one.at: "value" for one in cited}
        while waiting:
            before = len(waiting)
            for one in cited:
                if one.at in waiting:
                    try:
                        draft = self._together(draft, [one])
                        del waiting[one.at]
                    except Refused as refused:
                        waiting[one.at] = refused.reason
            if len(waiting) == before:
                rest = [one for one in cited if waiting.get(one.at) == "value"]
                together = next(self._groups(draft, rest), None)
                if together is None:
                    break
                draft, group = together
                for one in group:
                    del waiting[one.at]
        left_out.update(waiting.values())
        return draft

    def _groups(self, draft: _Draft, rest: Sequence[_Cited]) -> Iterator[tuple[_Draft, Sequence[_Cited]]]:
        """Yield operations that hold together: those that each mend something, or all of them."""
        wrong = _problems(self.form, draft.text)
        mending, possible = [], []
        for one in rest:
            with suppress(Refused):
                text = self._written(self._applied(draft, one)).text
                possible.append(one)
                if _problems(self.form, text) < wrong:
                    mending.append(one)
        for group in (mending, possible):
            if len(group) > 1:
                with suppress(Refused):
                    yield self._together(draft, group), group

    def _together(self, draft: _Draft, cited: Sequence[_Cited]) -> _Draft:
        """Return the draft with operations; raise `Refused` unless each is possible and the document is valid after all."""
        for one in cited:
            draft = self._applied(draft, one)
        draft = self._written(draft)
        if len(draft.text.encode()) > self.most:
            raise Refused("size")
        if not problems(self.form, draft.text) <= self.known:
            raise Refused("value")
        return draft

    def _written(self, draft: _Draft) -> _Draft:
        if not isinstance(self.form, JsonFormat):
            return draft
        return replace(draft, text=fields.write(self.form, draft.values, ())[0])

    def _applied(self, draft: _Draft, one: _Cited) -> _Draft:
        if isinstance(self.form, JsonFormat):
            changes = changed(self.form, draft.values, one.operation)
            values, text = applied(self.form, draft.values, changes), draft.text
        else:
            text = edited(self.form, draft.text, one.operation)
            values = read(self.form, text)[0]
            changes = differences(self.form, draft.values, values)
        first = sum(map(len, draft.claims))
        return _Draft(values, text, (*draft.claims, self._claims(one, changes, first)))

    def _claims(self, one: _Cited, changes: Sequence[Change], first: int) -> tuple[Claim, ...]:
        return tuple(
            Claim(
                path=path,
                value=value,
                is_set=is_set,
                said_at=max(source.said_at for source in one.sources),
                recorded_at=self.recorded_at,
                origin="keeper",
                sources=one.sources,
                order=order,
                is_line=not isinstance(self.form, JsonFormat),
            )
            for order, (path, value, is_set) in enumerate(changes, first)
        )


def _are_apart(claims: Sequence[Sequence[Claim]]) -> bool:
    """Tell whether no operation changes what another one changes, so that all are checked when the document is."""
    changed: set[str] = set()
    for some in claims:
        paths = {one.path for one in some}
        if not changed.isdisjoint(with_above(paths)) or not with_above(changed).isdisjoint(paths):
            return False
        changed |= paths
    return True
