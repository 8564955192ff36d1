"""The deletion of all data of a user: it goes on while a page shows how far it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import survey
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.studio.site import Missing, confirm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.reports import DeletionReport
    from langchain_workingmem.studio.site import Studio

PATIENCE = 0.3  # seconds in which a short deletion ends, so that its first page shows the outcome
KEPT = 100  # outcomes


@dataclass(slots=True)
class Deletion:
    """One deletion, as far as it is."""

    keys: int = 0  # of the database
    counts: Mapping[str, int] = field(default_factory=dict)
    looked: int | None = None  # at how many keys; None: it still deletes
    report: DeletionReport | None = None
    problem: object = None  # what has ended it
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether it goes on."""
        return self.task is not None and not self.task.done()

    async def run(self, studio: Studio, resource: str) -> None:
        """Delete, and note the outcome."""
        core = studio.memory._core
        try:
            sizes = await core.arun(survey(("DBSIZE",)))
            self.keys = sum(size for _, size in sizes if isinstance(size, int))
            self.report = await studio.memory.users.adelete(resource, namespaces=studio.namespaces)
        except WorkingMemError as error:
            notes = " ".join(getattr(error, "__notes__", ()))
            self.problem = f"{studio.reword(error)} {notes}".strip()


async def delete(studio: Studio, request: Request) -> Response:
    """Begin to delete all data of a resource, if its id was repeated; a second form joins the first."""
    resource = studio.owner(request)
    await confirm(request, resource, "nothing was deleted", "the id of the user")
    known = studio.deletions
    this: Deletion | None = known.get(resource)
    if this is None or not this.is_running:
        known.pop(resource, None)  # the newest stands last
        this = known[resource] = Deletion()
        task = this.task = asyncio.create_task(this.run(studio, resource))
        for name in [name for name, one in known.items() if not one.is_running][: max(0, len(known) - KEPT)]:
            del known[name]
        await asyncio.wait({task}, timeout=PATIENCE)
    return studio.go("/deletion", user=resource)


async def deletion(studio: Studio, request: Request) -> Response:
    """Show how far a deletion is, or its outcome."""
    resource = studio.owner(request)
    this = studio.deletions.get(resource)
    if this is None:
        raise Missing
    return studio.page(request, "deletion.html", user=resource, this=this)
