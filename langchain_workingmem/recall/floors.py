"""How similar a message has to be that a turn shows: known or learned for each embedding model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._engine.plan import Plan, Spawn, send

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.recall.ranking import Numbers

# Questions and their answers, about other things each. What a model makes of them tells which similarities are accidents.
# fmt: off
ASKED_AND_TOLD = (
    ("What is my dog called?", "Our little terrier listens to the name Rocky."),
    ("When is my sister's birthday?", "Anna turns thirty on the second of May."),
    ("Where did we go on holiday last year?", "In August we spent two weeks at the lake in Italy."),
    ("Which medicine does my father take?", "Dad swallows two tablets against high blood pressure every morning."),
    ("How much did the new bicycle cost?", "I paid nine hundred euros for it, with the lock."),
    ("What did the doctor say about my knee?", "The surgeon wants me to rest the joint for six weeks."),
    ("Who won the chess tournament?", "My neighbour's daughter beat everybody and took the cup home."),
    ("What is the password of the guest network?", "Visitors type sunflower-42 to get online."),
    ("Which paint did we choose for the kitchen?", "We painted those walls in a warm yellow."),
    ("When does the train to Vienna leave?", "It departs at a quarter past seven from platform four."),
    ("What am I allergic to?", "Peanuts make my throat swell."),
    ("Who is my manager at work?", "I report to Martha since the reorganisation."),
    ("What book did Tom recommend?", "He said that I must read a novel about a lighthouse."),
    ("How long should the bread stay in the oven?", "Bake the loaf for forty minutes at two hundred degrees."),
    ("What time is the parents' evening?", "The school invites us on Thursday at half past six."),
    ("Which plants need no sun?", "Ferns are happy in the dark corner of the hall."),
)
# fmt: on

ALONE = 1.1  # of a learned floor, or of a higher bar
FEWEST = 20  # messages of a memory in which a scale is worth its learning


class Floor(NamedTuple):
    """On the scale of a model."""

    shown: float  # the least similarity that a turn shows
    alone: float  # a short text whose best hit is less similar may follow up another text


# By the model's name in LangChain integrations. Similarities of different models cannot be compared.
_FLOORS = (
    (re.compile(r"wordllama-l2-supercat-256"), Floor(0.4, 0.44)),
    (re.compile(r"multilingual-use-v3-6bit"), Floor(0.19, 0.33)),
    (re.compile(r"(.*[/\\])?all-minilm(-l6-v2.*|:(latest|22m|l6-v2).*)?"), Floor(0.36, 0.4)),
)


def floor_of(model: str) -> Floor | None:
    """Return the floor of an embedding model, None when it was never measured."""
    return next((floor for pattern, floor in _FLOORS if pattern.fullmatch(model.lower())), None)


def floor_between(asked: Numbers, told: Numbers, distance: str) -> float:
    """Return the floor of a model by its vectors of questions and of their answers, in the same order.

    A question and the answer to another are similar by accident: what is to be shown stands out from that, by 3.6
    standard deviations. For the three models above, this gives .27, .25 and .34.
    """
    import numpy as np

    if distance == "cosine":
        asked, told = (one / np.linalg.norm(one, axis=1, keepdims=True).clip(1e-9) for one in (asked, told))
    by_accident = (asked @ told.T)[~np.eye(len(asked), dtype=bool)]
    return float(by_accident.mean() + 3.6 * by_accident.std())


def floor_for(state: MemoryState, *, learn: bool) -> Plan[Floor | None]:
    """Return the floor of the model's similarities. One that nobody has measured has none until it is learned in the background."""
    learned = state.indexes.scale
    floor = floor_of(state.indexes.model) or (learned and Floor(learned, ALONE * learned)) or None
    if floor is None and learn and state.is_first("floor"):
        yield Spawn(learn_scale(state, anew=False), slow=True)  # nobody waits for a paid model at the end of a process
    return floor


def learn_scale(state: MemoryState, *, anew: bool = True) -> Plan[None]:
    """Learn the floor of a model that nobody has measured, and keep it beside the index; or take what another process has learned.

    Two calls of the model with 16 short texts each, and two round trips. What fails is tried again later.
    """
    if floor_of(state.indexes.model) is not None:
        return
    try:
        (stored,) = yield from send(("GET", state.keys.vectors_scale))
        learned = json.loads(stored or "{}")
        if anew or learned.get("model") != state.indexes.model:
            asked, told = zip(*ASKED_AND_TOLD, strict=True)
            questions = yield from state.embedder.embed(asked, query=True)
            answers = yield from state.embedder.embed(told)
            if not questions.shape[1] == answers.shape[1] == state.indexes.dims:  # a model in trouble
                return
            floor = floor_between(questions, answers, state.recalling.index.distance)
            learned = {"model": state.indexes.model, "floor": floor}
            yield from send(("SET", state.keys.vectors_scale, json.dumps(learned)))
        state.indexes.scale = learned["floor"]
    finally:
        if state.indexes.scale is None:
            state.done.discard("floor")
