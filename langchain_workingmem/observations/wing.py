"""Lets observations take part in the turns of a memory, and reads their rows in archives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.calls import chat_model_by_name
from langchain_workingmem.checks import check_type
from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.log import Body
from langchain_workingmem.observations.options import ObservationOptions
from langchain_workingmem.observations.part import Observing

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import Core

__all__ = ["Body", "Observations", "install"]


def install(core: Core, options: Any) -> Observations:
    """Let observations take part in the turns of a memory; without options only read what was written before."""
    if options is not None:
        check_type(options, ObservationOptions, "observations")
        models = {name: getattr(options, name) for name in ("model", "reflector")}
        loaded = {name: chat_model_by_name(model) for name, model in models.items() if isinstance(model, str)}
        options = replace(options, **loaded)
        core.state.parts.append(Observing(options))
    return Observations(core, options)
