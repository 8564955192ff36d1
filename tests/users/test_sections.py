"""Optional rooms: what they keep of a user is exported, imported and deleted by a process that has not loaded them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem._redis import rooms
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import Scope
from langchain_workingmem.users.sections import MODELS, SECTIONS
from tests.helpers.observers import Echo
from tests.observations.test_lifecycle import IDS, each_scope, observed_by, talk
from tests.users.samples import HEADER, THREAD, log, message, observation


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take the room of observations out of this process; its loader notes that it is called, and puts it back."""
    model, section = MODELS["observations"], SECTIONS["observations"]
    calls: list[str] = []

    def load() -> None:
        calls.append("observations")
        MODELS["observations"], SECTIONS["observations"] = model, section

    monkeypatch.delitem(MODELS, "observations")
    monkeypatch.delitem(SECTIONS, "observations")
    monkeypatch.setitem(rooms.LOADERS, "observations", load)
    return calls


@pytest.mark.parametrize("where", ["export", "delete"])
@each_scope
def test_a_log_that_is_met_loads_its_room(make_memory: Any, loaded: list[str], scope: Scope, where: str) -> None:
    memory, other = make_memory(observations=observed_by(scope, model=Echo())), make_memory()
    talk(memory, turns=2)
    assert len(memory.observations.observe("t", resource_id="u")) == 4
    assert loaded == []
    if where == "export":
        assert [one["kind"] for one in other.export_resource("u")].count("observations") == 1
    else:
        report = other.delete_resource("u")
        assert (report.observations, report.verified) == (4, True)
        assert len(memory.observations.get(**IDS)) == 0
    # the log of a thread lies in its slot, and goes with it in one step
    assert set(loaded) == (set() if (where, scope) == ("delete", "thread") else {"observations"})


def test_without_a_log_no_room_is_loaded(plain: Memory, loaded: list[str]) -> None:
    plain.history.append([HumanMessage("tea", id="1")], **IDS)
    records = list(plain.export_resource("u"))
    plain.delete_resource("u")
    assert plain.import_resource(records).messages == 1
    with pytest.raises(OptionError, match="kind 'thing' is unknown"):
        plain.import_resource([HEADER, {"kind": "thing"}])
    assert loaded == []


def test_a_record_of_a_log_loads_its_room(plain: Memory, loaded: list[str]) -> None:
    assert plain.import_resource([HEADER, THREAD, message(), log(observation())]).observations == 1
    assert loaded == ["observations"]
    assert [one.text for one in plain.observations.get(**IDS)] == ["x"]
