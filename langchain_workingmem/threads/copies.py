"""Messages that were stored elsewhere before, written with their times: of clones, imports and checkpointers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Call, compute, send
from langchain_workingmem._redis import codec
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import READ, change_thread, check_owner, owner_tag, read_reply, vector_names
from langchain_workingmem._text.messages import structured_answers
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.history.read import complete_rows
from langchain_workingmem.history.save import known_in, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointTuple

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.models import StoredMessage, Thread
    from langchain_workingmem.options import RecallOptions

BATCH = 200  # messages of one step
STEP_BYTES = 4 * 2**20  # of one step; a larger message goes alone
CHANNEL = "messages"  # of the states of a checkpointer
MOST_LISTED = 1_000_000  # checkpoints that are listed; RedisSaver lists 10,000 unless it is asked for more


class Held(NamedTuple):
    """A message that a thread holds."""

    facts: Facts
    row: StoredMessage
    vectors: Sequence[bytes] | None  # None: Redis has evicted some


def read_held(
    state: MemoryState, thread_id: str, owner: str, selected: Sequence[Facts], *, vectors: bool = True
) -> Plan[list[Held]]:
    """Read messages of a thread with their vectors, without what cannot be read. One round trip, two with media."""
    keys = state.keys.of(thread_id)
    names = {facts.seq: vector_names(keys.vector, facts) if vectors else [] for facts in selected}
    reads = (("HGET", name, "vector") for group in names.values() for name in group)
    tag, bodies, *replies = yield from send(("HGET", keys.thread, "user"), ("HMGET", keys.messages, *names), *reads)
    if tag is None:
        raise errors.ThreadNotFoundError(thread_id)
    check_owner(tag, thread_id, owner)
    places = ((facts.seq, facts.total_tokens, body) for facts, body in zip(selected, bodies, strict=True))
    rows = {row.place: row for row in (yield from complete_rows(state, codec.read_rows(places, thread_id)))}
    waiting, held = iter(replies), list[Held]()
    for facts in selected:
        blobs = [*islice(waiting, len(names[facts.seq]))]
        if facts.seq in rows:
            held.append(Held(facts, rows[facts.seq], None if None in blobs else blobs))
    return held


class Copy(NamedTuple):
    """A message to write, with its vectors and the digest of their settings; without settings it is embedded."""

    draft: Draft
    settings: str = ""
    vectors: Sequence[bytes] = ()

    @classmethod
    def of(cls, draft: Draft, settings: str, vectors: Sequence[bytes] | None) -> Copy:
        """Take vectors if there is one for each chunk."""
        is_whole = vectors is not None and len(vectors) == len(draft.chunks)
        return cls(draft, settings, vectors or ()) if is_whole else cls(draft)


class Written(NamedTuple):
    """What was added to a thread."""

    seqs: dict[str, int]  # of the messages that were new, by id
    messages: int  # how many were new
    is_new: bool  # the thread


@dataclass(slots=True)
class Writer:
    """Adds messages to threads, and embeds those without vectors, until the model fails."""

    state: MemoryState
    failure: Exception | None = None  # of the model

    def add(
        self,
        thread_id: str,
        owner: str,
        copies: Iterable[Copy],
        *,
        fields: Mapping[str, str] | None = None,
        deleted: Sequence[str] = (),
        created_at: str | None = None,
    ) -> Plan[Written]:
        """Add messages, not `deleted` ones, in steps of 200; with `fields` the thread, too, with this `created_at`."""
        seqs, messages, is_new = dict[str, int](), 0, False
        if fields is not None:
            with suppress(errors.ThreadExistsError):
                yield from change_thread(self.state, thread_id, owner, "create", repeats=True, set=fields)
                is_new = True
        guard: dict[str, Any] = {"imports": True}
        if created_at is not None:
            guard |= {"created_at": created_at, "exists": True}
        keys, seen_ids = self.state.keys.of(thread_id), set[str]()
        for step in _steps(copies):
            # an edited question has several versions, of which an interrupted import may have stored the first ones
            versions = [item.draft for item in step if item.draft.id in seen_ids and item.draft.id not in seqs]
            again = {item.draft.id: seqs[item.draft.id] for item in step if item.draft.id in seqs}
            if versions:
                call = READ.on(keys, user=owner_tag(owner), ids=[draft.id for draft in versions])
                stored = known_in(read_reply((yield from send(call))[0], thread_id, owner))
                newest = {fact.id: fact.seq for fact in sorted(stored.facts)}
                held = {(fact.id, fact.digest.rstrip("!")) for fact in stored.facts}
                held |= {(id, "") for id in stored.deleted}
                versions = [draft for draft in versions if (draft.id, draft.digest.rstrip("!")) not in held]
                again |= {draft.id: newest.get(draft.id, -1) for draft in versions if (draft.id, "") not in held}
            seen_ids |= {item.draft.id for item in step}
            while step:
                drafts, vectors = [item.draft for item in step], [vector for item in step for vector in item.vectors]
                head = {**guard, "again": again or None, "deleted": None if messages else deleted or None}
                settings = step[0].settings
                embedded = (settings, vectors) if settings or self.failure is not None else None
                reply, failure = yield from write(self.state, drafts, thread_id, owner, embedded, **head)
                if reply.get("is_deleted"):
                    raise errors.ThreadNotFoundError(thread_id)
                self.failure = self.failure or failure
                if places := reply.get("known"):  # then nothing was written
                    step = [item for index, item in enumerate(step) if index not in places]  # noqa: PLW2901
                    continue
                seqs |= {draft.id: seq for draft, seq in zip(drafts, reply["seqs"], strict=True)}
                messages += len(drafts)
                break
        if deleted and not seen_ids:
            yield from write(self.state, [], thread_id, owner, deleted=deleted, **guard)
        return Written(seqs, messages, is_new)

    def end(self) -> None:
        """Raise the failure of the model."""
        if self.failure is not None:
            note = "everything is stored, some messages have no vectors yet: memory.recall.reindex() adds them"
            self.failure.add_note(note)
            raise self.failure


def _steps(copies: Iterable[Copy]) -> Iterator[list[Copy]]:
    """Cut messages into steps of the same settings, each id once, without what comes again, such as a record twice."""
    step, size, seen = list[Copy](), 0, set[object]()
    for item in copies:
        draft = item.draft
        key = (draft.id, draft.body, draft.at) if draft.is_superseded else draft.id
        if key in seen:
            continue
        seen.add(key)
        item_size = sum(map(len, (draft.body, *draft.chunks, *draft.media, *item.vectors)))
        is_full = len(step) >= BATCH or size + item_size > STEP_BYTES
        if step and (is_full or item.settings != step[0].settings or any(draft.id == other.draft.id for other in step)):
            yield step
            step, size = [], 0
        step.append(item)
        size += item_size
    if step:
        yield step


def copy_messages(
    core: Core, source: str, copy: Thread, selected: Sequence[Facts]
) -> Plan[tuple[dict[str, str], dict[str, int]]]:
    """Copy messages of a thread, perhaps into another slot; return their ids with the new ones, and where these lie."""
    state, owner, writer = core.state, copy.user_id, Writer(core.state)
    ids, seqs = dict[str, str](), dict[str, int]()
    for start in range(0, len(selected), BATCH):
        held = yield from read_held(state, source, owner, selected[start : start + BATCH])
        ids |= {item.facts.id: core.new_id() for item in held}
        size = codec.count_characters(item.row.message for item in held)
        copies = yield from compute(partial(_copied, held, ids, state.recall), size)
        written = yield from writer.add(copy.id, owner, copies, created_at=str(to_micros(copy.created_at)))
        seqs |= written.seqs
    return ids, seqs


def _copied(held: Iterable[Held], ids: Mapping[str, str], recall: RecallOptions | None) -> list[Copy]:
    copies = []
    for facts, row, vectors in held:
        message = row.message.model_copy(update={"id": ids[facts.id]})
        draft = codec.draft_of(message, recall, structured=facts.is_structured)
        draft.writer, draft.at = facts.writer, row.record["at"]
        if facts.is_refused:
            draft.refuse()
        copies.append(Copy.of(draft, facts.settings, vectors))
    return copies


def name_thread(state: MemoryState, thread_id: str, owner: str, title: str, seq: int) -> Plan[None]:
    """Set the title that a model has made from a message, if that is there. Two round trips."""
    (texts,) = yield from send(("ZRANGE", state.keys.of(thread_id).order, seq, seq, "BYSCORE"))
    for text in texts:
        yield from change_thread(state, thread_id, owner, "title", title=title, facts=text.decode())


# ---------------------------------------------------------------------- checkpointers


def own_method(saver: object, name: str) -> Any:
    """Return a method of a checkpointer, None if it has none of its own."""
    from langgraph.checkpoint.base import BaseCheckpointSaver

    if not isinstance(saver, BaseCheckpointSaver):
        raise wrong_type(saver, "checkpointer", "pass the checkpointer of your graph, such as InMemorySaver()")
    return None if getattr(type(saver), name) is getattr(BaseCheckpointSaver, name) else getattr(saver, name)


def check_saver(saver: object, method: str) -> Plan[None]:
    """Raise `OptionError` for what is no checkpointer, and for sync callers of async code; others may use a thread."""
    if own_method(saver, method) is None and own_method(saver, f"a{method}") is not None:

        def refuse() -> None:
            raise errors.OptionError(f"{type(saver).__name__} has no {method}()", remedy="await the async twin of this")

        async def accept() -> None: ...

        yield Call(refuse, accept)


def each_checkpoint(saver: Any, take: Callable[[CheckpointTuple], None], config: Any, **options: Any) -> Plan[None]:
    """Give each checkpoint of a listing to `take`."""
    alist = own_method(saver, "alist")

    def listed() -> None:
        for checkpoint in saver.list(config, **options):
            take(checkpoint)

    async def alisted() -> None:
        async for checkpoint in alist(config, **options):
            take(checkpoint)

    yield Call(listed, alist and alisted)


def threads_in(saver: Any) -> Plan[list[Any]]:
    """Return the ids of the threads of all checkpoints, without those of subgraphs; the last used first."""
    keys: list[Any] = []
    yield from each_checkpoint(saver, lambda entry: keys.append(entry.config["configurable"]), None, limit=MOST_LISTED)
    if len(keys) >= MOST_LISTED:
        raise errors.OptionError(f"the checkpointer has at least {MOST_LISTED:,} checkpoints", remedy="pass thread_ids")
    return list(dict.fromkeys(key["thread_id"] for key in keys if not key.get("checkpoint_ns")))


def store_conversation(writer: Writer, conversation: Conversation, owner: str) -> Plan[int]:
    """Store what the thread lacks, at its end; return how many messages. As `Writer.add`, and one round trip more."""
    messages, times, id = conversation.messages, conversation.times, check_id(conversation.thread_id, "thread_id")
    ids = [check_id(message.id, "message id") for message in messages]
    keys, recall = writer.state.keys.of(id), writer.state.recall
    (tag, next_seq), seqs = yield from send(("HMGET", keys.thread, "user", "next_seq"), ("HMGET", keys.ids, *ids))
    check_owner(tag, id, owner)
    held = [seq is not None for seq in seqs]  # or deleted
    known = sum(held)
    if not all(held[:known]) or (int(next_seq or 0) and not known):
        reason = f"of {len(held):,} messages memory lacks {len(held) - known:,}, which belong elsewhere or were deleted"
        remedy = "delete the thread with threads.delete() and backfill again, if the checkpoints hold all of it"
        raise errors.OptionError(reason, remedy=remedy)
    rest, answers = messages[known:], structured_answers(messages, is_over=True)
    drafts = yield from compute(partial(codec.drafts, rest, recall, str, answers), codec.count_characters(rest))
    for draft in drafts:
        draft.writer, draft.at = "s0", times[draft.id]  # as a checkpointer's state, whose turns follow
    start_time = str(times[ids[0]])
    fields = {"created_at": start_time, "updated_at": start_time} if rest else None
    return (yield from writer.add(id, owner, map(Copy, drafts), fields=fields)).messages


@dataclass(slots=True)
class Conversation:
    """A thread as its checkpoints tell it. `add` takes them from the newest to the oldest, and keeps none."""

    thread_id: str
    messages: list[BaseMessage] = field(default_factory=list)  # with ids
    times: dict[str, int] = field(default_factory=dict)  # by id: when the first checkpoint with the message was made
    metadata: dict[str, Any] = field(default_factory=dict)  # of the checkpoints, the newest value of each key
    _next_id: Any = ...  # id of the checkpoint to take next: others are of branches that were left

    def add(self, checkpoint: CheckpointTuple) -> None:
        """Take the messages of the newest checkpoint; of older ones what was trimmed from its front, and the times."""
        is_newest = self._next_id is ...
        if not is_newest and checkpoint.checkpoint["id"] != self._next_id:
            return
        self._next_id = (checkpoint.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        self.metadata = {**checkpoint.metadata, **self.metadata}
        messages = self._messages_in(checkpoint)
        micros = to_micros(datetime.fromisoformat(checkpoint.checkpoint["ts"]))
        self.times |= dict.fromkeys((message.id or "" for message in messages), micros)
        if is_newest:
            self.messages = messages
        first_id = self.messages[0].id if self.messages else None
        trimmed = next((index for index, message in enumerate(messages) if message.id == first_id), 0)
        known_ids = {message.id for message in self.messages}
        self.messages[:0] = [message for message in messages[:trimmed] if message.id not in known_ids]

    def _messages_in(self, checkpoint: CheckpointTuple) -> list[BaseMessage]:
        """Return the messages of a state, each with an id."""
        try:
            messages = codec.as_messages(checkpoint.checkpoint["channel_values"].get(CHANNEL) or [])
        except (errors.OptionError, ValueError) as error:
            reason = f"its channel {CHANNEL!r} holds no messages ({error})"
            raise errors.OptionError(reason, remedy="leave it out") from error
        for position, message in enumerate(messages):
            if not message.id:  # as in states that add_messages does not make
                text = f"{self.thread_id}\0{position}\0{message.type}\0{message.content}"
                message.id = sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
        return [*{message.id: message for message in messages if codec.is_storable(message)}.values()]
