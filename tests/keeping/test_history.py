"""What holds, since when, and what held before: one rule, one case."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given

from langchain_workingmem.keeping.claims import Claim, Source, write_claim
from langchain_workingmem.keeping.values import Values, seed
from tests.helpers.examples import examples
from tests.keeping.bitemporal import Op
from tests.keeping.documents import DEFAULT, PERSON, after_write, claim, held
from tests.keeping.test_values import histories


def said(path: str, value: object, seq: int, *, order: int = 0, thread: str = "t") -> Claim:
    """Say something by the message of this number, at ten times the number."""
    return claim(path, value, 10 * seq, sources=(Source(thread, f"m{seq}", seq, 10 * seq),), order=order)


ROME, OSLO, AGAIN = said("/city", "Rome", 1), said("/city", "Oslo", 2), said("/city", "Rome", 3)


def spans(values: Values, path: str = "/city") -> list[tuple[object, int, int | None]]:
    return [(one.value, one.since, one.until) for one in values.history(path)]


def test_a_value_is_replaced_only_by_one_that_was_said_later() -> None:
    for some in permutations([ROME, OSLO]):
        values = held(Values(), *some)
        assert values.render(PERSON) == '{"city": "Oslo"}'
        assert spans(values) == [("Oslo", 20, None), ("Rome", 10, 20)]


def test_a_removal_closes_a_value_and_a_late_one_does_nothing() -> None:
    removed = held(Values(), ROME, said("/city", None, 2))
    assert spans(removed) == [(None, 20, None), ("Rome", 10, 20)]
    assert not removed.history("/city")[0].is_set
    assert removed.render(PERSON) == ""
    assert held(Values(), OSLO, said("/city", None, 1)).render(PERSON) == '{"city": "Oslo"}'
    assert spans(held(Values(), OSLO, said("/city", None, 1))) == [("Oslo", 20, None)]


def test_a_value_that_is_repeated_holds_since_the_first_time_by_all_messages() -> None:
    values = held(Values(), said("/city", "Rome", 2), ROME, AGAIN)
    (one,) = values.history("/city")
    assert (one.since, [source.seq for source in one.sources]) == (10, [1, 2, 3])
    assert values.present(PERSON)["/city"] == one


def test_what_is_above_ends_what_is_below_it() -> None:
    values = held(Values(), said("/home/city", "Rome", 1), said("/home/street", "Via", 3), said("/home", None, 2))
    assert values.render(PERSON) == '{"home": {"street": "Via"}}'
    assert spans(values, "/home/city") == [(None, 20, None), ("Rome", 10, 20)]


# ---------------------------------------------------------------------- deleted and hidden


def test_the_earlier_value_is_back_when_the_message_of_the_later_is_deleted() -> None:
    values = held(Values(), ROME, OSLO).without("t", ((2, 2),))
    assert values.render(PERSON) == '{"city": "Rome"}'
    assert spans(values) == [("Rome", 10, None)]
    assert values.without("t", None).render(PERSON) == ""
    assert values.without("u", None) == values


def test_a_value_stays_by_its_other_message() -> None:
    both = claim("/city", "Rome", 20, sources=(*ROME.sources, *OSLO.sources))
    assert spans(held(Values(), both).without("t", ((2, 2),))) == [("Rome", 10, None)]


def test_what_a_program_or_a_person_set_without_messages_stays() -> None:
    own = [claim("/city", "Rome", 10, origin="program"), claim("/age", 3, 10, origin="person")]
    assert held(Values(), *own).without("t", None).render(PERSON) == '{"city": "Rome", "age": 3}'


def test_no_word_of_a_deleted_message_is_left_also_not_in_the_path_of_a_removal() -> None:
    values = held(
        Values(),
        said("/allergies/CANARY", "CANARY", 1),
        said("/allergies/CANARY", None, 2),
        said("/pets/CANARY/name", "CANARY", 1),
        said("/pets/CANARY", None, 2),
        said("/city", "Rome", 1),
        said("/city", None, 2),
        ROME,
    )
    assert "CANARY" in "".join(map(write_claim, values.claims.values()))
    left = values.without("t", ((1, 1),))
    assert "CANARY" not in "".join(map(write_claim, left.claims.values()))
    text = after_write(DEFAULT, Values(), "- CANARY is here\n- **CANARY**: x\n", said_at=10, sources=ROME.sources)
    text = after_write(DEFAULT, text, "", said_at=20, sources=OSLO.sources).without("t", ((1, 1),))
    assert text.claims == {}
    assert "CANARY" not in "".join(text.layout)


def test_the_values_of_hidden_messages_do_not_count_until_they_are_back() -> None:
    values = held(Values(), ROME, OSLO)
    hidden = Values(values.claims, hidden=frozenset({("t", 2)}))
    assert hidden.render(PERSON) == '{"city": "Rome"}'


# ---------------------------------------------------------------------- bounds


def test_the_newest_entries_of_a_value_are_kept() -> None:
    values = Values().adding((said("/age", at, at) for at in range(1, 30)), 5)
    assert spans(values, "/age") == [(at, 10 * at, 10 * at + 10 if at < 29 else None) for at in range(29, 24, -1)]


@examples(200)
@given(histories)
def test_what_holds_does_not_depend_on_how_much_history_is_kept(ops: list[Op]) -> None:
    all_values, few = Values(), Values()
    for op in ops:
        all_values, few = all_values.adding([op.claim()], 1000), few.adding([op.claim()], 1)
    assert few.render(PERSON) == all_values.render(PERSON)


# ---------------------------------------------------------------------- seeds


def test_a_document_that_was_there_is_a_programs_and_as_old_as_it_is() -> None:
    text = '{"city": "Rome", "allergies": ["nuts"]}'
    claims, layout = seed(PERSON, text, 70)
    values = Values(held(Values(), *claims).claims, layout)
    assert values.render(PERSON) == text
    assert {(one.origin, one.since, one.sources) for one in values.present(PERSON).values()} == {("program", 70, ())}
    assert seed(PERSON, "", 70) == ([], ())
