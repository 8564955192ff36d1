"""What a keeper knows of a guest, and what waits for it, when the guest becomes a user."""

from __future__ import annotations

from tests.helpers.types import Make
from tests.keeping.keeping import document, kept_by, say, values
from tests.keeping.scripted import knows, put
from tests.users.guests import GUEST, USER

FACTS = {
    "live in Rome": [put("/city", "Rome")],
    "moved to Oslo": [put("/city", "Oslo")],
    "am a baker": [put("/job", "baker")],
    "eat fish": [put("/diet", "fish")],
}


def test_what_the_guest_said_later_holds_and_what_the_user_said_is_its_history(make_memory: Make) -> None:
    keeper = knows(FACTS)
    memory = kept_by(make_memory, keeper)
    say(memory, "I live in Rome", "u", user_id=USER)
    said = say(memory, "I moved to Oslo", "g", user_id=GUEST)
    memory.users.merge(GUEST, into=USER)
    assert document(memory, "u", USER) == {"city": "Oslo"}
    state = memory.working_memory.get(user_id=USER)
    assert [(one.value, one.sources[0][0]) for one in state.history("/city")] == [("Oslo", "g"), ("Rome", "u")]
    calls = len(keeper.asked)
    memory.working_memory.keep("g", user_id=USER)
    assert len(keeper.asked) == calls  # it has read that thread already
    memory.history.delete(said[:1], thread_id="g")
    assert document(memory, "u", USER) == {"city": "Rome"}


def test_what_waits_of_the_guest_is_read_with_what_the_user_says_next(make_memory: Make) -> None:
    keeper = knows(FACTS)
    memory = kept_by(make_memory, keeper, keep_after=25)
    say(memory, "I am a baker", "g", user_id=GUEST)
    assert keeper.asked == []
    memory.users.merge(GUEST, into=USER)
    assert values(memory, "g", USER).cursor("g") == -1
    say(memory, "I eat fish, and much of it, on each day of the week", "u", user_id=USER)
    assert document(memory, "u", USER) == {"job": "baker", "diet": "fish"}
