"""Sixty turns of one user over eight conversations, and what holds after each of them: a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import Memory
from tests.keeping.keeping import values
from tests.keeping.scripted import drop, put

USER = "ann"
THREADS = ("home", "work", "food", "trips", "pets", "health", "money", "misc")


class Pet(BaseModel):
    name: str = Field(json_schema_extra={"key": True})
    kind: str | None = None


class Person(BaseModel):
    city: str | None = None
    job: str | None = None
    sister: str | None = None
    diet: str | None = None
    allergies: list[str] = []
    pets: list[Pet] = []


class Turn(NamedTuple):
    """What the user says, what the keeper makes of it, and what holds then: paths with their new values, None: nothing."""

    thread: str
    words: str
    operations: Sequence[dict[str, Any]] = ()
    holds: Mapping[str, Any] = {}
    name: str | None = None  # of an author who is not the user


def small(thread: str, words: str) -> Turn:
    return Turn(thread, words)


TURNS: list[Turn] = [
    Turn("home", "I live in Lisbon.", [put("/city", "Lisbon")], {"/city": "Lisbon"}),
    Turn("work", "I am a nurse at the harbour.", [put("/job", "nurse")], {"/job": "nurse"}),
    small("food", "What can I cook with leeks?"),
    Turn(
        "health",
        "I am allergic to penicillin.",
        [put("/allergies", "penicillin", "add")],
        {"/allergies/penicillin": "penicillin"},
    ),
    Turn(
        "pets",
        "My dog is called Rex.",
        [put("/pets", {"name": "Rex", "kind": "dog"}, "add")],
        {"/pets/Rex/name": "Rex", "/pets/Rex/kind": "dog"},
    ),
    small("trips", "Is Porto nice in March?"),
    Turn("food", "I eat no meat.", [put("/diet", "no meat")], {"/diet": "no meat"}),
    small("money", "What does a flat cost in Faro?"),
    Turn("misc", "My sister is called Ana.", [put("/sister", "Ana")], {"/sister": "Ana"}),  # edited after turn 30
    small("home", "The tap drips again."),
    small("trips", "If I get the job in Madrid, I move there."),
    Turn("health", "Nuts make me ill as well.", [put("/allergies", "nuts", "add")], {"/allergies/nuts": "nuts"}),
    small("work", "Write a note for the night shift."),
    Turn(
        "pets",
        "A cat has come to stay, Tom.",
        [put("/pets", {"name": "Tom", "kind": "cat"}, "add")],
        {"/pets/Tom/name": "Tom", "/pets/Tom/kind": "cat"},
    ),
    small("misc", "What is the time in Macau?"),
    small("money", "Compare two savings accounts."),
    Turn("home", "We have moved, to Coimbra.", [put("/city", "Coimbra")], {"/city": "Coimbra"}),
    small("food", "A soup for six people, please."),
    Turn("misc", "Ann says she lives in Paris and eats fish.", name="ben"),
    small("trips", "How long is the train to Porto?"),
    small("work", "I used to be a cook, long ago."),
    Turn(
        "health",
        "The doctor says I am not allergic to penicillin after all.",
        [drop("/allergies/penicillin")],
        {"/allergies/penicillin": None},
    ),
    small("pets", "How often do cats eat?"),
    Turn("food", "Fish is fine for me now.", [put("/diet", "fish, no meat")], {"/diet": "fish, no meat"}),
    small("money", "Remind me what a bond is."),
    small("home", "Which paint for a bathroom?"),
    Turn(
        "work", "I have a new job: I teach nurses.", [put("/job", "teacher of nurses")], {"/job": "teacher of nurses"}
    ),
    small("trips", "We may go to Madeira, if it is cheap."),
    small("misc", "Tell me a joke about clocks."),
    small("health", "How much should I sleep?"),
    small("food", "Can I freeze bread?"),
    Turn(
        "pets",
        "Tom turned out to be a ferret.",
        [put("/pets/Tom/kind", "ferret")],
        {"/pets/Tom/name": "Tom", "/pets/Tom/kind": "ferret"},
    ),
    small("money", "Is 3 % a good rate?"),
    small("home", "How do I descale a kettle?"),
    small("work", "A plan for ten lessons, please."),
    small("trips", "What is there to see in Braga?"),
    Turn("misc", "My sister has a new name, Joana.", [put("/sister", "Joana")], {"/sister": "Joana"}),
    small("health", "What helps against hay fever?"),
    small("food", "A cake without nuts?"),
    small("pets", "Are ferrets loud?"),
    small("money", "What is a standing order?"),
    Turn("home", "Since Sunday I live in Faro.", [put("/city", "Faro")], {"/city": "Faro"}),
    small("work", "Correct this letter."),
    small("trips", "Which beach is near Faro?"),
    small("misc", "What rhymes with orange?"),
    Turn(
        "health",
        "Please forget the thing about nuts, it was wrong.",
        [drop("/allergies/nuts")],
        {"/allergies/nuts": None},
    ),
    small("food", "A soup with nuts, then."),
    Turn("pets", "Rex has died.", [drop("/pets/Rex")], {"/pets/Rex/name": None, "/pets/Rex/kind": None}),
    small("money", "How do I sell a car?"),
    small("home", "Who collects old sofas?"),
    small("work", "I would be a pilot if I were younger."),
    small("trips", "Is there a night bus?"),
    Turn("food", "I have no diet at all any more.", [drop("/diet")], {"/diet": None}),
    small("misc", "How tall is a giraffe?"),
    Turn("health", "Latex gives me a rash.", [put("/allergies", "latex", "add")], {"/allergies/latex": "latex"}),
    small("pets", "Does Tom need a friend?"),
    small("money", "What is my budget for a bed?"),
    Turn("work", "I was made head of the school.", [put("/job", "head of a school")], {"/job": "head of a school"}),
    small("home", "Plants for a north window?"),
    small("trips", "Good night."),
]
EDITED, AFTER = 8, 30  # the turn whose message is edited, and after which one
EDIT = Turn("misc", "My sister is called Anna.", [put("/sister", "Anna")], {"/sister": "Anna"})
FACTS = {turn.words: turn.operations for turn in (*TURNS, EDIT) if turn.operations}


def turns_at(progress: int) -> list[Turn]:
    """Return the turns as they stand after a number of them."""
    return [EDIT if at == EDITED and progress > AFTER else turn for at, turn in enumerate(TURNS[:progress])]


class Truth(NamedTuple):
    """What holds, by the turns that said so, and what has held."""

    holds: dict[str, Any]
    told: dict[str, list[tuple[Any, list[int]]]]  # by path, the newest first: what was said, and in which turns

    @property
    def document(self) -> dict[str, Any]:
        """Return the document as plain values."""
        found: dict[str, Any] = {}
        for path, value in self.holds.items():
            match path.split("/")[1:]:
                case ["allergies", _]:
                    found.setdefault("allergies", []).append(value)
                case ["pets", name, field]:
                    found.setdefault("pets", {}).setdefault(name, {})[field] = value
                case [field]:
                    found[field] = value
        if "pets" in found:
            found["pets"] = [*found["pets"].values()]
        return found


def truth(turns: Iterable[tuple[int, Turn]]) -> Truth:
    """Return what follows from turns in their order."""
    found = Truth({}, {})
    for number, turn in turns:
        for path, value in turn.holds.items():
            told = found.told.setdefault(path, [])
            if told and told[0][0] == value:
                told[0][1].append(number)
                continue
            told.insert(0, (value, [number]))
            found.holds.pop(path, None)
            if value is not None:
                found.holds[path] = value
    return found


def message_id(number: int) -> str:
    return f"m{number:02}"


def messages(number: int) -> list[BaseMessage]:
    turn = TURNS[number]
    said = HumanMessage(turn.words, id=message_id(number), name=turn.name)
    return [said, AIMessage(f"I see ({number}).", id=f"a{number:02}")]


def save(memory: Memory, number: int) -> None:
    """Save a turn; after one of them the user edits an older message."""
    memory.save_turn(messages(number), thread_id=TURNS[number].thread, user_id=USER)
    if number == AFTER:
        memory.history.update([HumanMessage(EDIT.words, id=message_id(EDITED))], thread_id=EDIT.thread, user_id=USER)


def plain(text: str, form: Any) -> dict[str, Any]:
    """Return a document without what is empty."""
    value = form.value(text)
    return {} if value is None else value.model_dump(exclude_defaults=True)


def unordered(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document whose lists can be compared where their order says nothing."""
    return {name: sorted(value, key=str) if isinstance(value, list) else value for name, value in document.items()}


def check(memory: Memory, progress: int, times: Sequence[int], *, kept: Collection[int] | None = None) -> None:
    """Compare all that is known of the values with the table; `kept` are the turns that a keeper has read, None: all."""
    turns = [(at, turn) for at, turn in enumerate(turns_at(progress)) if kept is None or at in kept]
    now = truth(turns)
    found = values(memory, "home", USER)
    assert plain(found.state.text, found.form) == (
        found.state.value.model_dump(exclude_defaults=True) if found.state.value else {}
    )
    assert unordered(plain(found.state.text, found.form)) == unordered(now.document), progress
    present = found.values.present(found.form)
    sources = {path: [one.message_id for one in held.sources] for path, held in present.items()}
    assert sources == {path: [*map(message_id, now.told[path][0][1])] for path in now.holds}, progress
    for path, told in now.told.items():
        spans = found.values.history(path)
        assert [(one.value, [source.message_id for source in one.sources]) for one in spans] == [
            (value, [*map(message_id, numbers)]) for value, numbers in told
        ]
        assert [one.until for one in spans] == [None, *(one.since for one in spans[:-1])]
        assert [one.since for one in spans] == [times[numbers[0]] for _, numbers in told]
