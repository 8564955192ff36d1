"""Observations: a long conversation as a short, dated log with its sources. `wing` registers them."""

from langchain_workingmem.observations.log import Observation, ObservationLog
from langchain_workingmem.observations.options import ObservationOptions

__all__ = ["Observation", "ObservationLog", "ObservationOptions"]
