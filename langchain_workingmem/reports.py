"""The records that tell how something went: what the doctor found, what was deleted or imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from langchain_workingmem.models import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from langchain_workingmem.models import WorkingMemoryState

Level: TypeAlias = Literal["ok", "unknown", "warning", "error"]
CheckpointsOutcome: TypeAlias = Literal["not asked", "deleted", "not implemented"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check of the doctor."""

    check: str  # connection, server, search, persistence, eviction, memory, vectors, model and so on
    level: Level  # "unknown": this Redis user lacks the right to read it
    message: str
    remedy: str | None = None  # None: nothing needs to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Shown):
    """The findings of the doctor, in the order of its checks. Iterating a diagnosis iterates its findings."""

    findings: list[Finding]

    @property
    def level(self) -> Level:
        """Return the worst level; "unknown" does not count."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("error", "warning") if level in levels), "ok")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport:
    """Counts of what a deletion has deleted."""

    user_id: str
    threads: int = 0
    messages: int = 0
    vectors: int = 0
    working_memories: int = 0  # of the user and of its threads
    revisions: int = 0
    files: int = 0  # each with its revisions
    # "deleted": those of the threads; "not asked": no `checkpointer` was passed; "not implemented": it cannot
    checkpoints: CheckpointsOutcome = "not asked"
    verified: bool  # no key names the user any more; False: others wrote at the same time, call it again


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What a merge has moved from one user to another one."""

    source: str
    into: str
    threads: int = 0
    messages: int = 0
    working_memories: int = 0  # 1: that of the source was merged
    files: int = 0  # each with its revisions; without those that both have alike
    # of the source, where the other user has another file: old path to new
    files_renamed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Counts of what an import has added."""

    user_id: str
    threads: int = 0
    messages: int = 0
    skipped: int = 0  # messages that were stored already
    dropped: int = 0  # messages that an importer has left out, such as system prompts
    working_memories: int = 0
    revisions: int = 0
    files: int = 0
    # paths where another file is stored, or was deleted: it stays as it is
    files_left: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReport:
    """Counts of what a backfill has added, and the threads that it has left as they are."""

    threads: int = 0  # that got messages
    messages: int = 0
    known: int = 0  # threads of which memory had all messages already
    skipped: int = 0  # threads without an owner, or without messages
    left: Mapping[str, str] = field(default_factory=dict)  # by thread id: why it was not stored, or not to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperReport:
    """A working memory after its keeper has read a thread."""

    memory: WorkingMemoryState
    operations: int = 0  # that have changed a value
    left_out: int = (
        0  # operations that could not be taken: of a path or value that the schema lacks, or without a source
    )
    last_error: str | None = None  # why the model has failed; what it has not read waits


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSummary:
    """A user who owns threads."""

    user_id: str
    threads: int
    messages: int  # of these threads
    updated_at: datetime  # when the last of these threads changed


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage(Shown):
    """A part of the list of users. Iterating a page iterates its users."""

    users: list[UserSummary]
    next_cursor: str | None = None  # pass it as `cursor` for the next page; None: this is the last page

    def __iter__(self) -> Iterator[UserSummary]:
        return iter(self.users)

    def __len__(self) -> int:
        return len(self.users)
