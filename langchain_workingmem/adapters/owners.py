"""Whose files an adapter means, and how its methods run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables.config import ensure_config

from langchain_workingmem.faces.ids import Owner, as_owner, required_ids, resolve

if TYPE_CHECKING:
    from langchain_workingmem.files import Files
    from langchain_workingmem.memory import Memory


class OfOwner:
    """Files of the owner that a program fixes, or of the user of the run."""

    def __init__(self, memory: Memory, resource_id: str | Owner | None, *, trust_client_ids: bool = False) -> None:
        self.files: Files = memory.files
        self._core = memory._core
        self._owner = as_owner(resource_id)
        self._trust_client_ids = trust_client_ids

    @property
    def owner(self) -> str:
        """Return the owner: what the program fixes, else the user of the run, else its thread."""
        ids = resolve(ensure_config(), resource_id=self._owner, trust_client_ids=self._trust_client_ids)
        return ids.resource_id if ids.resource_id is not None else required_ids(ids)[1]
