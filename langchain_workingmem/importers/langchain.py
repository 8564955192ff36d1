"""Lists of LangChain's `messages_to_dict`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import messages_from_dict

from langchain_workingmem._redis.codec import UNREADABLE, is_storable
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.importers.records import check_list, message_record
from langchain_workingmem.users.archive import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.importers.records import Record


def from_langchain(threads: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[Record]:
    """Turn lists of `messages_to_dict`, by thread id, into records.

    A message without an id gets one from its thread and position, so that a second import adds nothing. System messages and
    summaries are left out. Such lists contain no times: each message gets the time of the import.
    """
    if not isinstance(threads, Mapping):
        raise wrong_type(threads, "threads", "pass a dict of thread ids and lists of messages_to_dict")
    yield header()
    for thread_id, messages in threads.items():
        check_list(messages, f"thread {thread_id!r}", "a list of messages_to_dict")
        yield {"kind": "thread", "id": thread_id}
        for position, given in enumerate(messages):
            try:
                (message,) = messages_from_dict([dict(given)])
            except UNREADABLE as error:
                seen = f"thread {thread_id!r}, message {position} is not a message of messages_to_dict ({error!r})"
                raise OptionError(seen, remedy="pass lists of messages_to_dict") from error
            message.id = message.id or str(uuid5(NAMESPACE_OID, f"{thread_id}/{position}"))
            if is_storable(message):
                yield message_record(thread_id, message, None)
