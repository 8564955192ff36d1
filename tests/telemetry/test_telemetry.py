"""Spans and metrics by the conventions of OpenTelemetry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from langchain_workingmem import Memory, ThreadOwnershipError, TitleOptions
from langchain_workingmem import telemetry as ours
from langchain_workingmem._engine import calls
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted, ask, configured
from tests.helpers.trips import Trips
from tests.helpers.types import Invoke, Make

IDS: Any = {"thread_id": "secret-thread", "user_id": "secret-user"}
TURN = [("human", "my secret cat is called Tom"), ("ai", "a secret name")]


class Seen:
    """What an exporter gets."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(shutdown_on_exit=False), MeterProvider([self.reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> list[ReadableSpan]:
        found = self.exporter.get_finished_spans()
        self.exporter.clear()
        return [*found]

    def the(self, operation: str) -> ReadableSpan:
        (found,) = [one for one in self.spans() if of(one, "langchain_workingmem.operation") == operation]
        return found

    def points(self) -> dict[str, list[Any]]:
        data: Any = self.reader.get_metrics_data()
        metrics = [
            one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics
        ]
        return {metric.name: [*metric.data.data_points] for metric in metrics}


def of(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


@pytest.fixture
def seen() -> Iterator[Seen]:
    seen = Seen()
    ours.instrument(tracer_provider=seen.tracers, meter_provider=seen.meters)
    yield seen
    ours.uninstrument()
    seen.meters.shutdown()


def titled(*script: Any) -> TitleOptions:
    return TitleOptions(model=Scripted.says(*script), min_messages=1)


USED = {"input_tokens": 40, "output_tokens": 3, "total_tokens": 43}
TITLE = AIMessage("Cats", usage_metadata=USED, response_metadata={"model_provider": "mistralai"})


@pytest.mark.both_faces
def test_each_kind_of_operation_has_its_name_and_its_counts(make_memory: Make, seen: Seen, trips: Trips) -> None:
    memory = make_memory(embeddings=WordEmbeddings())
    memory.save_turn(TURN, **IDS)
    memory.settled()
    found: Any = memory.recall.search("cat", user_id=IDS["user_id"])
    before = trips.count
    memory.context("what is the name of my cat?", **IDS)
    counted = trips.count - before
    memory.threads.update(IDS["thread_id"], user_id=IDS["user_id"], title="x")
    memory.history.delete([found.hits[0].message.id], **IDS)
    list(memory.users.export(IDS["user_id"]))
    memory.users.delete(IDS["user_id"])
    spans = seen.spans()
    named = [(one.name, of(one, "langchain_workingmem.operation")) for one in spans]
    assert [*dict.fromkeys(named)] == [  # an export has a span for each of its steps
        ("create_memory", "memory.save_turn"),
        ("search_memory", "recall.search"),
        ("search_memory", "memory.context"),
        ("update_memory", "threads.update"),
        ("delete_memory", "history.delete"),
        ("search_memory", "users.export"),
        ("delete_memory", "users.delete"),
    ]
    assert {one.kind for one in spans} == {SpanKind.CLIENT}
    assert {one.status.status_code for one in spans} == {StatusCode.UNSET}
    assert [of(one, "gen_ai.memory.record.count") for one in spans[:2]] == [2, len(found)]
    assert of(spans[2], "langchain_workingmem.round_trips") == counted
    points = seen.points()
    (hits,) = points["langchain_workingmem.hits"]
    assert (hits.count, hits.min, dict(hits.attributes)) == (2, 0, {"gen_ai.operation.name": "search_memory"})
    sums = {one.attributes["gen_ai.operation.name"]: one.sum for one in points["langchain_workingmem.round_trips"]}
    assert sums["create_memory"] == of(spans[0], "langchain_workingmem.round_trips")
    assert sum(one.count for one in points["gen_ai.client.operation.duration"]) == len(spans)


def test_a_span_is_a_child_of_the_callers_and_the_parent_of_what_it_does(make_memory: Make, seen: Seen) -> None:
    class Watching(WordEmbeddings):
        def embed_query(self, text: str) -> list[float]:
            inside.append(get_current_span().get_span_context().span_id)
            return super().embed_query(text)

    inside: list[int] = []
    memory = make_memory(embeddings=Watching())
    with seen.tracers.get_tracer("app").start_as_current_span("request") as outer:
        memory.context("cat?", **IDS)
        assert get_current_span() is outer
    context, request = seen.spans()
    assert context.parent is not None
    assert request.context is not None
    assert context.context is not None
    assert context.parent.span_id == request.context.span_id
    assert inside == [context.context.span_id]


@pytest.mark.both_faces
def test_a_title_has_a_trace_of_its_own_that_refers_to_the_turn(make_memory: Make, seen: Seen) -> None:
    memory = make_memory(title=titled(TITLE))
    memory.save_turn(TURN, **IDS)
    memory.settled()
    turn, chat, title = sorted(
        seen.spans(), key=lambda span: (span.name == "update_memory", span.name != "create_memory")
    )
    assert (title.parent, [link.context for link in title.links]) == (None, [turn.context])
    assert of(title, "langchain_workingmem.operation") == "background.title"
    assert title.context is not None
    assert chat.parent is not None
    assert (chat.name, chat.parent.span_id) == ("chat Scripted", title.context.span_id)
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "Scripted",
        "gen_ai.provider.name": "mistralai",
        "langchain_workingmem.task": "title",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 3,
    }
    used = seen.points()["gen_ai.client.token.usage"]
    assert {one.attributes["gen_ai.token.type"]: one.sum for one in used} == {"input": 40, "output": 3}
    assert {one.attributes["langchain_workingmem.task"] for one in used} == {"title"}


@pytest.mark.both_faces
def test_an_error_sets_the_status_and_its_type_and_quotes_nobody(make_memory: Make, seen: Seen) -> None:
    memory = make_memory(title=titled(ValueError("secret")))
    memory.save_turn(TURN, **IDS)
    memory.settled()
    chat = next(one for one in seen.spans() if one.name.startswith("chat"))
    assert (of(chat, "error.type"), chat.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert (chat.status.description, chat.events) == (None, ())
    with pytest.raises(ThreadOwnershipError):
        memory.history.messages(IDS["thread_id"], user_id="secret-other")
    failed = seen.the("history.messages")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert (of(failed, "error.type"), failed.events) == ("ThreadOwnershipError", ())
    types = {one.attributes.get("error.type") for one in seen.points()["gen_ai.client.operation.duration"]}
    assert types == {None, "ThreadOwnershipError", "ValueError"}


def test_a_failure_that_an_agent_goes_on_without_is_marked(make_memory: Make, seen: Seen) -> None:
    embeddings = WordEmbeddings()
    embeddings.broken = RuntimeError("no quota")
    make_memory(embeddings=embeddings, on_error="log").context("cat?", **IDS)
    span = seen.the("memory.context")
    assert (of(span, "error.type"), span.status.status_code) == ("EmbeddingError", StatusCode.ERROR)


def test_a_cancelled_call_ends_its_span(make_memory: Make, seen: Seen) -> None:
    class Cancelled(WordEmbeddings):
        async def aembed_query(self, text: str) -> list[float]:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(make_memory(embeddings=Cancelled()).acontext("cat?", **IDS))
    assert of(seen.the("memory.context"), "error.type") == "CancelledError"


@pytest.mark.both_faces
def test_users_and_contents_are_named_by_nothing(make_memory: Make, seen: Seen, invoke: Invoke) -> None:
    from langchain.agents import create_agent

    memory: Any = make_memory(embeddings=WordEmbeddings(), title=titled(TITLE))
    own = getattr(memory, "_target", memory)
    agent = create_agent(Scripted.says("a secret name"), middleware=[MemoryMiddleware(own)])
    invoke(agent, ask("my secret cat is called Tom"), configured("secret-thread", "secret-user"))
    memory.settled()
    spans, points = seen.spans(), seen.points()
    assert [one.name for one in spans if one.name != "chat Scripted"].count("search_memory") == 1
    shown = [{**(one.attributes or {}), "": one.name} for one in spans]
    told = shown + [dict(point.attributes) for some in points.values() for point in some]
    assert not [value for one in told for value in one.values() if "secret" in str(value)]


def test_it_is_off_until_it_is_asked_for_and_off_again_afterwards(plain: Memory, seen: Seen) -> None:
    ours.uninstrument()
    plain.save_turn(TURN, **IDS)
    assert (seen.spans(), calls.plan_wrapper) == ([], None)
    instrumentor = ours.WorkingMemoryInstrumentor()
    instrumentor.instrument(tracer_provider=seen.tracers, raise_exception_on_conflict=True)
    plain.threads.list()
    assert [one.name for one in seen.spans()] == ["search_memory"]
    instrumentor.uninstrument()
    plain.threads.list()
    assert seen.spans() == []
