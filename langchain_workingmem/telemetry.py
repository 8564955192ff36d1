"""Spans and metrics for OpenTelemetry, by its conventions for generative AI; needs the extra `otel`.

`instrument` puts one wrapper around each plan that a memory runs. A plan yields what it needs of Redis and of models, so the
wrapper sees every round trip, every call of a chat model and every background task; no other module knows of OpenTelemetry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem import __version__
from langchain_workingmem._engine import calls
from langchain_workingmem._engine.calls import AskedModel, name_of
from langchain_workingmem._engine.plan import Call, Send, Spawn, with_each
from langchain_workingmem.errors import OptionError
from langchain_workingmem.models import RecallResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, StatusCode, TracerProvider

    from langchain_workingmem._engine.plan import Effect, Plan, T

__all__ = ["WorkingMemoryInstrumentor", "instrument", "uninstrument"]

# By the convention: which operation each method is. Methods that are missing make no span.
_METHODS = {
    "create_memory_store": "setup",
    "search_memory": (
        "context search get sources messages page list for_user lineage history at revisions read "
        "glob grep usage download_files export search_messages prepare load_memory search_memory "
        "get_working_memory"
    ),
    "create_memory": "save_turn append add_messages create clone load backfill write upload_files after_agent save_memory",
    "update_memory": (
        "update transfer merge edit insert rename revert undo keep observe reindex reindex_messages update_working_memory"
    ),
    "upsert_memory": "put",
    "delete_memory": "delete truncate clear clear_working_memory",
}
OPERATIONS = {method: name for name, methods in _METHODS.items() for method in methods.split()}
_PUBLIC = {  # plans that run under the name of their own function, and the method that users know
    "backfill": "threads.backfill",
    "delete": "users.delete",
    "export": "users.export",
    "load": "users.load",
    "reindex_messages": "recall.reindex",
    "search_messages": "recall.search",
}
# Both lists of bounds are the convention's.
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4**power for power in range(14)]
_COUNTS = [0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128]


def instrument(*, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Report what every memory of this process does to OpenTelemetry, from now on.

    None as a provider: the global one. Spans name no user and no thread, and hold no text of any kind. A second call replaces
    the first. Cost: below 1 % of a turn where the provider does nothing.
    """
    try:
        from opentelemetry.context import attach, detach
        from opentelemetry.metrics import get_meter
        from opentelemetry.trace import Link, SpanKind, StatusCode, get_tracer, set_span_in_context
    except ImportError as error:
        remedy = "pip install 'langchain-workingmem[otel]'"
        raise OptionError("OpenTelemetry is not installed", remedy=remedy) from error
    name = "langchain_workingmem"
    tracer = get_tracer(name, __version__, tracer_provider)
    meter = get_meter(name, __version__, meter_provider)
    buckets = {"explicit_bucket_boundaries_advisory": _COUNTS}
    calls.plan_wrapper = _Telemetry(
        start=partial(tracer.start_span, kind=SpanKind.CLIENT),
        enter=lambda span: attach(set_span_in_context(span)),
        leave=detach,
        link=Link,
        failed=StatusCode.ERROR,
        duration=meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        tokens=meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        ),
        trips=meter.create_histogram(f"{name}.round_trips", "{round_trip}", "Round trips to Redis.", **buckets),
        hits=meter.create_histogram(f"{name}.hits", "{hit}", "Messages that recall found.", **buckets),
    ).watch


def uninstrument() -> None:
    """End what `instrument` began. Operations that run now report their end."""
    calls.plan_wrapper = None


class WorkingMemoryInstrumentor:
    """`instrument` and `uninstrument` in the form that the program `opentelemetry-instrument` looks for."""

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_: object,  # that program also says which checks of versions to skip
    ) -> None:
        """Call `instrument`."""
        instrument(tracer_provider=tracer_provider, meter_provider=meter_provider)

    def uninstrument(self, **_: object) -> None:
        """Call `uninstrument`."""
        uninstrument()


@dataclass(slots=True)
class _Run:
    """One plan that runs: its span, which begins with its first effect, and what it counts."""

    attributes: dict[str, Any]
    link: Any = None  # the span that started it in the background
    began: float = field(default_factory=perf_counter)
    span: Span | None = None
    token: Any = None
    trips: list[None] = field(default_factory=list)  # a list, because plans that run side by side add to it
    hits: int | None = None
    failed: dict[type, BaseException] = field(default_factory=dict)  # by effect; the plan may go on without it

    def note(self, result: Any) -> None:
        """Note how much recall has found."""
        recalled = getattr(result, "recalled", result)  # of what a turn has gathered
        if isinstance(recalled, RecallResult):
            self.hits = len(recalled.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Telemetry:
    """The wrapper around plans. It holds what it needs of OpenTelemetry, which only `instrument` imports."""

    start: Callable[..., Span]
    enter: Callable[[Span], Any]  # makes a span the current one
    leave: Callable[[Any], None]  # takes what `enter` has returned
    link: Callable[..., Link]
    failed: StatusCode
    duration: Any
    tokens: Any
    trips: Any
    hits: Any
    cache: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def watch(self, plan: Plan[T], name: str, store: str) -> Plan[T]:
        """Return a plan that does the same and has a span; the plan itself if its method makes none."""
        name = name or getattr(plan, "__name__", "")
        attributes = self.cache.get((name, store))
        if attributes is None:
            operation = OPERATIONS.get(name.rpartition(".")[2])
            attributes = self.cache[name, store] = {} if operation is None else _attributes(operation, name, store)
        return self._spanned(plan, _Run(attributes)) if attributes else plan

    def _spanned(self, plan: Plan[T], run: _Run) -> Plan[T]:
        outer = calls.recall_listener.get()
        calls.recall_listener.set(run.note)
        try:
            result = yield from self._through(plan, run)
        except BaseException as error:
            self._end(run, _reason(error), None)
            raise
        finally:
            calls.recall_listener.set(outer)
        self._end(run, next(iter(run.failed.values()), None), result)
        return result

    def _through(self, plan: Plan[T], run: _Run) -> Plan[T]:
        """Pass on the effects of a plan, and look at each."""

        def watched(effect: Effect[Any]) -> Plan[Any]:
            if run.span is None:
                self._begin(run)
            match effect:
                case Send():
                    run.trips.append(None)
                case Call(about=AskedModel() as request):
                    return (yield from self._asked(effect, request))
                case Spawn():
                    effect = self._in_background(effect, run)
            try:
                result = yield effect
            except Exception as error:
                run.failed[type(effect)] = error
                raise
            run.failed.pop(type(effect), None)
            return result

        return with_each(plan, watched)

    def _begin(self, run: _Run) -> None:
        links = None if run.link is None else [self.link(run.link.get_span_context())]
        run.span = self.start(run.attributes["gen_ai.operation.name"], attributes=run.attributes, links=links)
        run.token = self.enter(run.span)

    def _end(self, run: _Run, error: BaseException | None, result: Any) -> None:
        span, labels = run.span, {"gen_ai.operation.name": run.attributes["gen_ai.operation.name"]}
        if span is None:
            return  # it did nothing
        if run.token is not None:
            self.leave(run.token)
        run.note(result)
        if error is not None:
            labels["error.type"] = type(error).__qualname__
            span.set_attribute("error.type", labels["error.type"])
            span.set_status(self.failed)  # without the message, which may quote users
        count = run.hits if run.hits is not None else _count(result)
        if span.is_recording():
            span.set_attribute("langchain_workingmem.round_trips", len(run.trips))
            if count is not None:
                span.set_attribute("gen_ai.memory.record.count", count)
        span.end()
        self.duration.record(perf_counter() - run.began, labels)
        self.trips.record(len(run.trips), labels)
        if run.hits is not None:
            self.hits.record(run.hits, labels)

    def _asked(self, effect: Effect[Any], request: AskedModel) -> Plan[Any]:
        """Pass on a call of a chat model, in a span of its own, and count its tokens."""
        runnable: Any = request.model  # or what `with_structured_output` has made of it
        # steps of a sequence, what a binding binds, and the model that stands as "raw" in a parallel step
        while inner := next(filter(None, (getattr(runnable, name, 0) for name in ("first", "bound", "steps__"))), None):
            runnable = inner.get("raw") if isinstance(inner, dict) else inner
        model = name_of(runnable)
        labels = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        labels["langchain_workingmem.task"] = str(request.run.get("run_name", ""))
        began, error, answer = perf_counter(), cast("BaseException | None", None), cast("Any", None)
        span = self.start(f"chat {model}", attributes=labels)
        token = self.enter(span)
        try:
            answer = yield effect
        except BaseException as failure:
            error = _reason(failure)
            raise
        finally:
            self.leave(token)
            message = answer["raw"] if isinstance(answer, dict) else answer
            metadata: Mapping[str, Any] = getattr(message, "response_metadata", None) or {}
            labels["gen_ai.provider.name"] = str(metadata.get("model_provider") or type(runnable).__name__)
            if error is not None:
                # of what the model raised, where that is known
                labels["error.type"] = type(error.__cause__ or error).__qualname__
                span.set_status(self.failed)
            span.set_attributes(labels)
            self.duration.record(perf_counter() - began, labels)
            usage: Mapping[str, Any] = getattr(message, "usage_metadata", None) or {}
            for kind in ("input", "output"):
                if (count := usage.get(f"{kind}_tokens")) is not None:
                    span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
                    self.tokens.record(count, {**labels, "gen_ai.token.type": kind})
            span.end()
        return answer

    def _in_background(self, effect: Spawn, run: _Run) -> Effect[None]:
        """Give the plan a trace of its own, which refers to the span that started it: it may outlive that span."""
        store = run.attributes["gen_ai.memory.store.id"]
        background = _Run(_attributes("update_memory", f"background.{effect.task}", store), run.span)
        return replace(effect, plan=self._spanned(effect.plan, background))


def _attributes(operation: str, name: str, store: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.memory.store.id": store,
        "langchain_workingmem.operation": _PUBLIC.get(name, name.lower()),
    }


def _reason(error: BaseException | None) -> BaseException | None:
    """Return why a plan ends: one that is closed ends by what has stopped its runner, such as a cancellation; else None."""
    if not isinstance(error, GeneratorExit):
        return error
    while isinstance(error, GeneratorExit):
        error = error.__context__
    return None if isinstance(error, Exception) else error  # an ordinary one was being handled when the plan was closed


def _count(result: Any) -> int | None:
    """Return how many records an operation has written or deleted, as far as its result tells."""
    return len(result) if isinstance(result, list) else int(result) if isinstance(result, int) else None
