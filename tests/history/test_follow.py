"""What a list means for a thread, by a table: what is stored, what is sent, and what follows from that. No server."""

from __future__ import annotations

import pytest

from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._text.messages import STRIDE
from langchain_workingmem.history.follow import Entry, Kind, Known, follow

# A message is `words=id`: q a question, a an answer, t tool traffic; stored ones are superseded behind -, of a program
# behind +, deleted behind !. Results are the places of stored messages, and of sent ones.
TABLE: list[tuple[str, Kind, str, str, list[int], list[int], list[int]]] = [
    ("a new turn", "list", "q1=a a1=b", "q2", [], [], [0]),
    ("old words are a new turn, too", "list", "q1=a a1=b q2=c a2=d", "q1", [], [], [0]),
    ("asked again, as nobody has answered", "list", "q1=a a1=b q2=c", "q2", [], [], []),
    ("a list without ids that goes on", "list", "q1=a a1=b q2=c a2=d", "q1 a1 q2 a2 q3", [], [], [4]),
    ("a tail of it", "list", "q1=a a1=b q2=c a2=d", "q2 a2 q3", [], [], [2]),
    ("a list that agrees nowhere: its last turn", "list", "q1=a a1=b", "q7 a7 q8 a8 q9", [], [], [4]),
    ("a regenerated answer", "list", "q1=a a1=b", "q1=a a2=c", [1], [], [1]),
    ("without ids", "list", "q1=a a1=b q2=c a2=d", "q1 a1 q2 a3", [3], [], [3]),
    ("an edited question", "list", "q1=a a1=b q2=c a2=d", "q1=a a1=b q3=c", [2, 3], [], [2]),
    ("an answer that a guard has changed", "list", "q1=a a1=b", "q1=a a2=b q2=c", [], [], [2]),
    ("a branch that returns", "list", "q1=a -a1=b a2=c", "q1=a a1=b q2=d", [2], [1], [2]),
    ("a note of a program stays", "list", "q1=a a1=b +a7=n", "q1=a a1=b q2=c", [], [], [2]),
    ("tool traffic stays with its answer", "list", "q1=a t=x t=y a1=b", "q1=a a1=b q2=c", [], [], [2]),
    ("and goes with it", "list", "q1=a t=x t=y a1=b", "q1=a a2=c", [1, 2, 3], [], [1]),
    ("what a state has lost", "state", "q1=a a1=b q2=c a2=d", "q1=a q2=c a2=d q3=e", [1], [], [3]),
    ("a reminder stays where it was", "list", "q1=a q7=r a1=b", "q2=c q7=r a2=d", [], [], [0, 2]),
    ("and is current again if it was superseded", "list", "q1=a -q7=r a1=b", "q2=c q7=r a2=d", [], [1], [0, 2]),
    (
        "an answer out of order keeps its tool traffic",
        "list",
        "q1=a t=x t=y a1=b q2=c a2=d",
        "a1=b q1=a q2=c a2=d q3=e",
        [],
        [],
        [4],
    ),
    ("an edited question is no older one", "list", "q1=a -q9=b -a9=c q2=d a2=e", "q1=a q9=d", [3, 4], [], [1]),
    ("what was deleted is passed over", "list", "q1=a a1=b !a2=d q3=e a3=f", "q1 a1=b a2=d q3 a3", [], [], []),
    ("a note behind an edit stays", "list", "q1=a a1=b q2=c a2=d +a7=n", "q1=a a1=b q3=c", [2, 3], [], [2]),
    ("what was truncated stays away", "list", "q1=a a1=b -q2=c -a2=d", "q2 a7 q3", [], [], [2]),
    ("others stand between", "list", "q1=a | q7=x a1=b", "q1=a a1 q2", [], [], [2]),
    ("questions alone are no branch", "list", "q1=a q2=b a1=c q3=d a3=e", "q1 q2 q9", [], [], [0, 1, 2]),
    ("what is current counts in front", "list", "-q1=a q1=c a1=d q2=e a2=f", "q1 a1 q2=e a9=g", [4], [], [3]),
    ("traffic in front of it is old", "list", "q1=a a1=b", "t q2", [], [], [1]),
    ("a reminder is not left behind", "list", "q1=a a1=b q7=r a2=d", "q1=a a1=b q2=c q7=r a3=e", [3], [], [2, 4]),
    ("a reminder behind a deleted one", "list", "q1=a !q7=r a1=b", "q7=r q1=a a2=d", [2], [], [2]),
    ("what others have said meanwhile stays", "list", "q1=a a1=b | q2=c a2=d", "q3=a", [0, 1], [], [0]),
    ("an answer with an older id", "list", "q1=a a1=x q2=c", "q2=c a2=x", [], [], [1]),
    ("one question is no list", "list", "q1=a", "q9 a9 q1=a a2=b", [], [], [3]),
    ("what was refused and deleted", "list", "q1=a a1=b !q2!=c", "q1=a a1=b q2=c q3=d", [], [], [3]),
    ("a state without its checkpoints", "state", "q1=a a1=b q2=c a2=d q3=e", "q9=c", [2, 3, 4], [], [0]),
    ("asks again", "state", "q1=a a1=b q2=c a2=d", "q2=c", [2, 3], [], [0]),
    ("asks again what nobody answered", "state", "q1=a a1=b q2=c", "q2=c", [], [], []),
    ("asks again beside a note", "state", "q1=a a1=b q2=c +a7=n", "q2=c", [], [], []),
    ("asks again beside others", "state", "q1=a a1=b q2=c | a2=d", "q2=c", [], [], []),
    ("its first question is edited", "state", "q1=a a1=b", "q9=a", [0, 1], [], [0]),
    ("its first turn has two questions", "state", "q1=a q2=b a1=c", "q1=a q2=b", [2], [], []),
    ("a structured answer is left out", "list", "q1=a as1=b q2=c", "q1= q2=", [], [], []),
    ("a copy that shows less is the answer", "list", "q1=a a1=b q2=c", "q1= *=b q2=", [], [], []),
    ("gaps of a part mean nothing", "part", "q1=a a1=b q2=c a2=d", "q1=a q3=e", [], [], [1]),
]


@pytest.mark.parametrize(
    ("kind", "stored", "sent", "drop", "bring_back", "new"), [one[1:] for one in TABLE], ids=[one[0] for one in TABLE]
)
def test_a_list_means(
    kind: Kind, stored: str, sent: str, drop: list[int], bring_back: list[int], new: list[int]
) -> None:
    facts, end, deleted = list[Facts](), 0, dict[str, str]()
    seen = len(stored.partition(" |")[0].split())
    for at, text in enumerate(stored.replace(" |", "").split(), 1):
        words, id = text.lstrip("-+!").split("=")
        writer = "" if text[0] == "+" else "s0" if kind == "state" else "l"
        end = (at + 1) * STRIDE
        if text[0] == "!":
            deleted[id] = words
        else:
            facts.append(Facts(at * STRIDE, words.strip("t"), 1, at, writer, "", id, "", text[0] != "-"))
    pairs = (text.partition("=") for text in sent.split())
    entries = [Entry(id or None, words.strip("t"), words.strip("t")[:1]) for words, _, id in pairs]
    known = Known(facts=facts, next_seq=end, next_seq_when_read=(seen + 1) * STRIDE, deleted=deleted)
    found = follow(entries, kind, known)
    assert [at // STRIDE - 1 for at in found.drop] == drop
    assert [at // STRIDE - 1 for at in found.bring_back] == bring_back
    assert (found.new, found.changes_branch, found.is_older) == (new, bool(drop or bring_back), False)
    if kind == "state":  # one without its checkpoints is another writer
        has_lost = bool(found.again) and seen > 2
        assert (found.writer == f"s{end}") is has_lost


def test_a_list_that_begins_before_the_thread_is_older() -> None:
    facts = [Facts(at * STRIDE, words, 1, 0, "l", "", words, "") for at, words in enumerate(("q2", "a2"))]
    assert follow(
        [Entry(None, words, words[0]) for words in ("q1", "a1", "q2", "a2")], "list", Known(facts=facts)
    ).is_older


def test_what_the_caller_could_not_see_stays_where_its_edited_question_was_superseded_meanwhile() -> None:
    stored = ("q1", True), ("a1", False), ("q2", False), ("a3", True)  # another client has asked q1 again
    facts = [Facts(at, words, 1, 0, "l", "", words, "", current) for at, (words, current) in enumerate(stored)]
    entries = [Entry("q1", "q1", "q"), Entry("a1", "a1", "a"), Entry("q2", "q3", "q")]
    found = follow(entries, "list", Known(facts=facts, next_seq=4, next_seq_when_read=3))
    assert (found.drop, found.bring_back, found.new) == ([], [1], [2])


def test_an_answer_in_front_of_a_stored_question_is_none_of_the_examples() -> None:
    writers = "bblllll"
    stored = [("q1", "a1", "q2", "a2", "q3", "a3", "q4")[at] for at in range(7)]
    facts = [Facts(at * STRIDE, words, 1, 0, writers[at], "", words, "") for at, words in enumerate(stored)]
    sent = [Entry(None, "a1", "a"), Entry("q4", "q4", "q"), Entry(None, "a9", "a")]
    found = follow(sent, "list", Known(facts=facts, next_seq=7 * STRIDE, next_seq_when_read=7 * STRIDE))
    assert (found.drop, found.new) == ([], [2])
