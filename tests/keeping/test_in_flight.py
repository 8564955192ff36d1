"""What a keeper is asked about goes while it thinks: nothing of its answer holds a word of what was deleted."""

from __future__ import annotations

import json
import threading

import pytest
import redis

from tests.helpers.types import Make
from tests.keeping.keeping import IDS, document, kept_by, say
from tests.keeping.scripted import Asked, Keeper, held
from tests.keeping.world import keys_with


def _answer(asked: Asked) -> str:
    text = asked.shown[1]
    said = (
        {"op": "add", "path": "/allergies", "value": "Xanadu"} if "Xanadu" in text else {"op": "remove", "path": "v1"}
    )
    return json.dumps([{**said, "messages": [1]}])


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_removal_names_nothing_that_was_deleted_meanwhile(
    make_memory: Make, raw: redis.Redis, prefix: str, scope: str
) -> None:
    keeper = Keeper(answer=_answer)
    memory = kept_by(make_memory, keeper, scope=scope)
    ids = say(memory, "I cannot stand Xanadu")
    assert document(memory) == {"allergies": ["Xanadu"]}
    gate = held()
    keeper.entered, keeper.released = gate["entered"], gate["released"]
    turn = threading.Thread(target=say, args=(memory, "by now I like it"))
    turn.start()
    assert keeper.entered.wait(5)
    kept_by(make_memory, keeper, scope=scope).history.delete(ids, **IDS)
    keeper.released.set()
    turn.join()
    assert len(keeper.asked) == 2
    assert document(memory) == {}
    assert keys_with(raw, prefix, "Xanadu") == []
