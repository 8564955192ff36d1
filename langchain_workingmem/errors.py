"""Every error that this package raises on purpose.

    WorkingMemError
    ├── OptionError (ValueError)                    a wrong argument or option
    │   └── ArgumentError                           one that a model may have sent
    ├── IdError (ValueError)                        a missing or bad id
    ├── MemoryClosedError (RuntimeError)            a call after `close`
    ├── ThreadNotFoundError (LookupError)
    ├── MessageNotFoundError (LookupError)
    ├── ThreadExistsError (ValueError)
    ├── ThreadConflictError (RuntimeError)          others were always first
    ├── ThreadOwnershipError (PermissionError)      it has another owner
    ├── ThreadDamagedError (RuntimeError)           Redis has evicted a part of it
    ├── UserDeletedError (RuntimeError)             a deletion or merge is running
    ├── ReadOnlyError (PermissionError)             memory is read-only
    ├── WorkingMemoryValidationError (ValueError)   the update is refused
    ├── WorkingMemoryConflictError (RuntimeError)   another one was first
    ├── RevisionNotFoundError (LookupError)
    ├── ObservationNotFoundError (LookupError)
    ├── FilePathError (ValueError)                  no path, or something is in its way
    ├── FileMissingError (LookupError)              no file, or no such revision
    ├── FileEditError (ValueError)                  the place to edit is not clear
    ├── FileConflictError (RuntimeError)            others changed the file meanwhile
    ├── FileQuotaError (ValueError)                 the owner's files would be too large
    ├── ModelError (RuntimeError)                   a chat model or the reranker failed
    ├── EmbeddingError (RuntimeError)               the embeddings failed
    ├── EmbeddingSizeError (ValueError)             vectors of another size
    ├── RedisConnectionError (ConnectionError)      Redis is not reachable
    │   └── OutcomeUnknownError                     the reply was lost
    ├── RedisReplyError (RuntimeError)              Redis refused a command
    └── RedisCapabilityError (RuntimeError)         no Search, or no server

Each is also the builtin that a caller expects. `str(error)` says what was seen and what helps, `.remedy` what helps.
"""

from __future__ import annotations


class WorkingMemError(Exception):
    """Root of the errors of langchain-workingmem; `remedy` says what helps, None if nothing is known to help."""

    def __init__(self, message: object = "", *, remedy: str | None = None) -> None:
        seen = str(message)
        super().__init__(f"{seen}: {remedy}" if remedy and remedy not in seen else seen)
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # constructors take other arguments than the message, so pickle and copy do not call them
        return _new, (type(self), *self.args), self.__dict__


def _new(kind: type[WorkingMemError], *args: object) -> WorkingMemError:
    error = kind.__new__(kind, *args)
    error.args = args  # `OSError` leaves them to its constructor
    return error


class OptionError(WorkingMemError, ValueError):
    """An option or argument that cannot work; the message names the ones that do."""


class ArgumentError(OptionError):
    """An argument of one call that cannot work, and that a model may have sent to a tool: it is told the message."""


class IdError(WorkingMemError, ValueError):
    """An id that is missing, empty, too long, or holds a character that is not allowed."""


class MemoryClosedError(WorkingMemError, RuntimeError):
    """The memory was used after `close`."""

    def __init__(self) -> None:
        super().__init__("the memory is closed", remedy="make another Memory(...), or close this one later")


class ThreadNotFoundError(WorkingMemError, LookupError):
    """No thread has this id."""

    def __init__(self, thread_id: str) -> None:
        remedy = "create it with threads.create(), or append a message to it"
        super().__init__(f"no thread {thread_id!r}", remedy=remedy)
        self.thread_id = thread_id


class MessageNotFoundError(WorkingMemError, LookupError):
    """The thread holds no message with this id."""

    def __init__(self, message_id: str, thread_id: str) -> None:
        super().__init__(f"no message {message_id!r} in thread {thread_id!r}", remedy="history.page() lists the ids")
        self.message_id, self.thread_id = message_id, thread_id


class ThreadExistsError(WorkingMemError, ValueError):
    """A thread with this id exists; nothing was written."""

    def __init__(self, thread_id: str) -> None:
        remedy = "read it with threads.get(), change it with threads.update()"
        super().__init__(f"thread {thread_id!r} exists", remedy=remedy)
        self.thread_id = thread_id


class ThreadConflictError(WorkingMemError, RuntimeError):
    """Others have changed the thread each time that this write looked at it. Nothing was written."""

    def __init__(self, thread_id: str) -> None:
        seen = f"thread {thread_id!r} was changed by others again and again, so this change was not written"
        super().__init__(seen, remedy="make the same call again")
        self.thread_id = thread_id


class ThreadOwnershipError(WorkingMemError, PermissionError):
    """The thread belongs to another user, whom the error does not name; nothing was read or written."""

    def __init__(self, thread_id: str, user_id: str, *, owns_itself: bool = False) -> None:
        remedy = "use a thread of that user, or hand the thread over with threads.transfer()"
        if owns_itself:
            own = f"memory.users.merge({thread_id!r}, into={user_id!r})"
            remedy = f"it was begun without a user_id, so it owns itself: {own} hands over all that it has"
        elif user_id == thread_id:  # as when a run names a thread and no user
            remedy = "it has an owner, so pass the owner's user_id as well, or use a thread of your own"
        super().__init__(f"thread {thread_id!r} does not belong to user {user_id!r}", remedy=remedy)
        self.thread_id, self.user_id = thread_id, user_id


class ThreadDamagedError(WorkingMemError, RuntimeError):
    """A part of the thread is gone, as when Redis evicts keys, so nobody can say who owns it."""

    def __init__(self, thread_id: str) -> None:
        seen = f"a part of thread {thread_id!r} is gone, as when Redis evicts keys, so nobody can say who owns it"
        remedy = f"threads.delete({thread_id!r}) deletes the rest; set maxmemory-policy noeviction"
        super().__init__(seen, remedy=remedy)


class UserDeletedError(WorkingMemError, RuntimeError):
    """The user is being deleted or merged, until `users.delete` or `users.merge` has returned; the write is refused."""

    def __init__(self, user_id: str) -> None:
        seen = f"user {user_id!r} is being deleted or merged into another one, nothing of this write is kept"
        remedy = "try again when users.delete() or users.merge() has returned; if that was interrupted, call it again"
        super().__init__(seen, remedy=remedy)
        self.user_id = user_id


class ReadOnlyError(WorkingMemError, PermissionError):
    """Working memory is read-only here; nothing was written."""


class WorkingMemoryValidationError(WorkingMemError, ValueError):
    """An update was refused; working memory has not changed.

    The message is written for people and models that make updates. `fields` names the fields that the schema refuses.
    """

    def __init__(self, message: str, fields: tuple[str, ...] = (), *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.fields = fields


class WorkingMemoryConflictError(WorkingMemError, RuntimeError):
    """Working memory has changed since the revision that the update was made for; nothing was written."""

    def __init__(self, *, expected: int, actual: int) -> None:
        seen = f"working memory is at revision {actual}, the update was made for revision {expected}"
        super().__init__(seen, remedy="read it again, and repeat the update")
        self.expected, self.actual = expected, actual


class RevisionNotFoundError(WorkingMemError, LookupError):
    """This revision of working memory is no longer kept, or never existed."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"revision {revision} is not kept", remedy="working_memory.revisions() lists those that are")
        self.revision = revision


class ObservationNotFoundError(WorkingMemError, LookupError):
    """No observation has this id."""

    def __init__(self, observation_id: str) -> None:
        super().__init__(f"no observation has the id {observation_id!r}", remedy="take one from observations.get()")
        self.observation_id = observation_id


class ModelError(WorkingMemError, RuntimeError):
    """A chat model or a reranker that memory calls failed, did not answer in time, or returned what is no hit."""


class EmbeddingError(WorkingMemError, RuntimeError):
    """The embedding model failed. Messages that were being saved are stored, without vectors."""


class EmbeddingSizeError(WorkingMemError, ValueError):
    """The embedding model gives vectors of another size than the index holds."""

    def __init__(self, message: str, *, expected: int, actual: int, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.expected, self.actual = expected, actual


class RedisConnectionError(WorkingMemError, ConnectionError):
    """Redis cannot be reached, refused the login, closed the connection, or did not reply in time.

    A write whose reply was lost may have happened. `repeats` is how often memory may repeat the command by itself;
    `timed_out` tells whether the call waited for its whole timeout.
    """

    def __init__(self, message: str, *, remedy: str | None = None, repeats: int = 0, timed_out: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.repeats, self.timed_out = repeats, timed_out


class OutcomeUnknownError(RedisConnectionError):
    """The reply to a write was lost, so it may have taken effect: read the data, and repeat it if it has not."""


# How servers word errors that we act upon: up to 8.6 Search has no codes. NOSEARCH, NOTDB0 and NOSHARD are ours.
_CODES_BY_WORDS = {
    "no permissions": "NOPERM",  # also inside a script
    "required permissions": "NOPERM",  # of Search
    "no such index": "SEARCH_INDEX_NOT_FOUND",
    "index not found": "SEARCH_INDEX_NOT_FOUND",  # of the coordinator of a cluster
    "unknown index name": "SEARCH_INDEX_NOT_FOUND",  # FT.INFO and FT.DROPINDEX
    "the index was dropped": "SEARCH_INDEX_DROPPED_BG",  # while the search waited for a thread of the server
    "index already exists": "SEARCH_INDEX_EXISTS",
    "query vector blob size": "SEARCH_VECTOR_BLOB_SIZE_MISMATCH",
    "not enough memory available to execute the query": "OOM",  # of Search since 8.4
    "unknown command 'ft.": "NOSEARCH",
    "index on db != 0": "NOTDB0",
    "could not send query to cluster": "NOSHARD",  # these three: of the coordinator of a cluster
    "uninitialized cluster state": "NOSHARD",
    "query requires unavailable slots": "NOSHARD",
}


def code_of(reply: str) -> str:
    """Return the code of an error, as `RedisReplyError` describes it."""
    said = reply.lower()
    return next((code for words, code in _CODES_BY_WORDS.items() if words in said), reply.split(" ", 1)[0])


class RedisReplyError(WorkingMemError, RuntimeError):
    """Redis refused a command; `code` says why.

    It is the first word of the reply, such as `OOM`. Search before 8.8 sends no codes: what it says of a missing index
    has the code of newer versions here, `SEARCH_INDEX_NOT_FOUND`, and so on for all errors that memory acts upon.
    """

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code_of(message)


class RedisCapabilityError(WorkingMemError, RuntimeError):
    """The server has no Search module, or no Redis server can be started here."""


class FilePathError(WorkingMemError, ValueError):
    """A path is not valid, or something is in its way; nothing was written."""

    def __init__(self, path: object, problem: str, *, remedy: str) -> None:
        super().__init__(f"path {path!r} {problem}", remedy=remedy)
        self.path, self.problem = path, problem


class FileMissingError(WorkingMemError, LookupError):
    """There is no file, or no revision of it, at this path."""

    def __init__(self, path: str, revision: int | None = None) -> None:
        seen, remedy = f"there is no file {path!r}", "look for its path in a list of the files"
        if revision is not None:
            seen = f"revision {revision} of {path!r} is not kept"
            remedy = "the history of the file lists those that are"
        super().__init__(seen, remedy=remedy)
        self.path, self.revision = path, revision


class FileEditError(WorkingMemError, ValueError):
    """The text to replace is not in the file, or more than once, or the line is not there; nothing was changed.

    `lines` are the numbers of the lines where it begins, the first 1,000.
    """

    def __init__(self, path: str, problem: str, *, remedy: str, lines: tuple[int, ...] = ()) -> None:
        super().__init__(f"{path!r}: {problem}, so nothing was changed", remedy=remedy)
        self.path, self.lines = path, lines


class FileConflictError(WorkingMemError, RuntimeError):
    """Others have changed a file since `base_revision`; `stored` is its text at `revision`. Nothing was written."""

    def __init__(self, path: str, revision: int, stored: str) -> None:
        now = f"is at revision {revision} now" if revision else "does not exist"
        remedy = "read it again, and change what it says now"
        super().__init__(f"{path!r} has changed since you read it, and {now}, so nothing was written", remedy=remedy)
        self.path, self.revision, self.stored = path, revision, stored


class FileQuotaError(WorkingMemError, ValueError):
    """The file, or all files of the owner, would be larger than `FileOptions` allow; nothing was written."""


# what a call on files may be refused with
OF_FILES = (FilePathError, FileMissingError, FileEditError, FileConflictError, FileQuotaError)
