"""Clients without ids over few words: what they send is the branch, and what they only leave out is kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_workingmem import Memory
from tests.helpers.examples import examples
from tests.helpers.models import Scripted, agent_of, configured
from tests.helpers.types import Make

WORDS = st.integers(0, 2)
# what a client does: goes on, has the last answer made anew, edits its last question, or goes back so many turns
STEPS = st.lists(st.tuples(st.sampled_from(["on", "again", "edit", "back"]), WORDS, WORDS, st.booleans()), max_size=7)
EXAMPLES = ["e1", "A1", "e2", "A2"]


def messages(words: list[str]) -> list[BaseMessage]:
    """What a client without ids sends: answers are in capitals."""
    return [AIMessage(word) if word[0].isupper() else HumanMessage(word) for word in words]


class Client:
    """A client of one thread; every list is made of new messages."""

    threads = 0

    def __init__(self, memory: Memory) -> None:
        Client.threads += 1
        self.memory = memory
        self.ids: dict[str, Any] = {"thread_id": f"t{Client.threads}", "user_id": "u"}

    def turn(self, sent: list[str], answer: str, *, asks: bool = True, saves: list[str] | None = None) -> list[str]:
        """Ask with a list, perhaps only save it; return what is stored now."""
        if asks:
            self.memory.context(messages(sent), **self.ids)
        self.memory.save_turn(messages([*(sent if saves is None else saves), answer]), **self.ids)
        return [message.text for message in self.memory.history.messages(self.ids["thread_id"])]


@given(STEPS)
@examples(60, server=True, derandomize=True)
def test_a_whole_list_is_the_branch(plain: Memory, steps: list[tuple[str, int, int, bool]]) -> None:
    client, talk = Client(plain), ["start", "A"]
    client.turn(["start"], "A", asks=False)
    for what, question, answer, asks in steps:
        if what == "on" or len(talk) < 4:
            sent = [*talk, f"q{question}"]
        elif what == "again":
            sent = talk[:-1]
        else:
            kept = -2 if what == "edit" else 2 + 2 * (question % (len(talk) // 2))
            sent = [*talk[:kept], f"q{question}"]
        talk = [*sent, f"A{answer}"]
        assert client.turn(sent, talk[-1], asks=asks) == talk


@pytest.mark.parametrize("front", [[], EXAMPLES[:2], EXAMPLES, ["Welcome"]])
@pytest.mark.parametrize("saves_all", [False, True])
@given(turns=st.lists(st.tuples(WORDS, WORDS), min_size=3, max_size=7), size=st.integers(2, 3))
@examples(8, server=True, derandomize=True)
def test_a_window_behind_fixed_messages_loses_nothing(
    plain: Memory, front: list[str], *, saves_all: bool, turns: list[tuple[int, int]], size: int
) -> None:
    client, talk, stored = Client(plain), list[str](), list[str]()
    for number, (question, answer) in enumerate(turns):
        asked = f"q{question}-{number // 2}"  # the same question may come twice in a row
        sent = [*front, *talk[-2 * size :], asked]
        stored = client.turn(sent, f"A{answer}-{number}", saves=None if saves_all else [asked])
        talk += [asked, f"A{answer}-{number}"]
    assert stored == [*(front if saves_all else []), *talk]


@pytest.mark.parametrize("front", [[], EXAMPLES[:2], ["Welcome"]])
@pytest.mark.parametrize("is_agent", [False, True])
def test_a_question_that_is_asked_again_behind_fixed_messages_is_a_new_turn(
    make_memory: Make, front: list[str], *, is_agent: bool
) -> None:
    client = Client(make_memory())
    asked = {"hi": "Hello!", "nuts make me ill": "Noted.", "what can I eat?": "Rice."}
    order = ["hi", "nuts make me ill", "hi", "what can I eat?", "hi"]
    agent = agent_of(Scripted.says(*map(asked.__getitem__, order)), client.memory)
    for question in order:
        sent = [*front, question]
        if is_agent:
            given = [SystemMessage("Be kind."), *messages(sent)]
            agent.invoke({"messages": given}, configured(client.ids["thread_id"], "u"))
        else:
            client.turn(sent, asked[question])
    stored = [message.text for message in client.memory.history.messages(client.ids["thread_id"])]
    assert stored == [*front, *(words for question in order for words in (question, asked[question]))]


@pytest.mark.parametrize("saves_all", [False, True])
@pytest.mark.parametrize("head", [1, 2])
def test_a_list_of_which_the_middle_was_cut_out_loses_nothing(plain: Memory, head: int, *, saves_all: bool) -> None:
    client, talk = Client(plain), list[str]()
    for number in range(6):
        asked = f"q{number}"
        sent = [*talk[:head], *talk[head:][-2:], asked]
        shown = [message.text for message in plain.context(messages(sent), **client.ids).messages]
        assert shown == [*talk, asked]
        talk += [asked, f"A{number}"]
        assert client.turn(sent, talk[-1], asks=False, saves=None if saves_all else [asked]) == talk


def saved(memory: Memory, *lists: str) -> str:
    """Save lists, one after the other; return what is stored then."""
    client, stored = Client(memory), list[str]()
    for words in lists:
        *sent, answer = words.split()
        stored = client.turn(sent, answer, asks=False)
    return " ".join(stored)


@pytest.mark.parametrize(
    ("lists", "stored"),
    [
        # saved once more, as after a lost reply
        (["e1 A1 q B", "e1 A1 r C", "e1 A1 q B r C", "e1 A1 q B r C"], "e1 A1 q B r C"),
        (["q A", "q A q A", "q A q A"], "q A q A"),
        # the last answer and a question that has followed the same words before
        (["q A", "q A r B", "q A r B s A", "A r C"], "q A r B s A r C"),
        # the last turn, which is an older one word for word, and a new one
        (["e1 A1 q B", "e1 A1 r C", "e1 A1 q B", "e1 A1 q B s D"], "e1 A1 q B r C q B s D"),
        # several new turns behind examples, of which one is an old one word for word
        (["e1 A1 q B", "e1 A1 t T", "e1 A1 r C", "e1 A1 n N t T s D"], "e1 A1 q B t T r C n N t T s D"),
    ],
)
def test_a_list_that_agrees_in_two_ways_hides_nothing(plain: Memory, lists: list[str], stored: str) -> None:
    assert saved(plain, *lists) == stored


@pytest.mark.parametrize("is_note", [False, True])
def test_what_others_have_said_meanwhile_is_no_end_of_a_window(plain: Memory, is_note: bool) -> None:
    client = Client(plain)
    for words in ("q A", "q A r B", "q A r B s C"):
        *sent, answer = words.split()
        client.turn(sent, answer)
    sent = ["q", "A", "s", "C", "t"]  # the middle was cut out
    if not is_note:
        plain.context(messages(sent), **client.ids)
    others = plain.history.append if is_note else plain.save_turn
    others(messages(["Note"] if is_note else ["other", "Note"]), **client.ids)
    stored = client.turn(sent, "D", asks=is_note)
    assert stored == [*"qArBsC", *(["Note"] if is_note else ["other", "Note"]), "t", "D"]
