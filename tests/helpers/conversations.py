"""Conversations drawn at random, and what a strict provider accepts of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage


class RefusedError(AssertionError):
    """What a strict provider answers with status 400."""


def calls_of(message: BaseMessage) -> list[str]:
    if not isinstance(message, AIMessage):
        return []
    return [call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]


def accept(messages: Sequence[BaseMessage]) -> None:
    """Raise `RefusedError` for what OpenAI or Anthropic refuse."""
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.id is not None:
            if message.id in seen:
                raise RefusedError(f"{place}: id {message.id!r} twice")
            seen.add(message.id)
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise RefusedError(f"{place}: a result of no call right before it")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise RefusedError(f"{place}: calls {waiting} are not answered")
        waiting = calls_of(message)
        if len(set(waiting)) != len(waiting):
            raise RefusedError(f"{place}: one call id for two calls")
        if not waiting and not str(message.text).strip():  # the strategies below make no pictures
            raise RefusedError(f"{place}: no content")
    if waiting:
        raise RefusedError(f"the end: calls {waiting} are not answered")


def ai(text: str, *calls: str, id: str | None = None, names: Sequence[str] = ()) -> AIMessage:
    named = [*names, *["f"] * (len(calls) - len(names))]
    return AIMessage(
        text,
        id=id,
        tool_calls=[{"name": name, "args": {}, "id": call} for call, name in zip(calls, named, strict=True)],
    )


def result(call: str, id: str | None = None) -> ToolMessage:
    return ToolMessage("done", tool_call_id=call, id=id)


_ids = st.none() | st.sampled_from([f"m{at}" for at in range(12)])
_calls = st.sampled_from(["a", "b", "c", "d"])
_texts = st.sampled_from(["", " ", "hello", "words"])
tool_names = st.sampled_from(["search", "bake"])


@st.composite
def _answers(draw: st.DrawFn) -> AIMessage:
    made = draw(st.lists(st.tuples(_calls, tool_names), max_size=3))
    broken = draw(st.lists(_calls, max_size=1)) if draw(st.integers(0, 5)) == 0 else []
    return AIMessage(
        draw(_texts),
        id=draw(_ids),
        tool_calls=[{"name": name, "args": {}, "id": call} for call, name in made],
        invalid_tool_calls=[
            {"name": "f", "args": "{", "id": call, "error": None, "type": "invalid_tool_call"} for call in broken
        ],
    )


any_message: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, _texts, id=_ids),
    _answers(),
    st.builds(ToolMessage, st.sampled_from(["", "done"]), tool_call_id=_calls, id=_ids),
)


any_messages = st.lists(any_message, max_size=14)


@st.composite
def conversations(draw: st.DrawFn) -> list[BaseMessage]:
    """Conversations that are valid as they are; call ids are unique, or numbered anew in each answer."""
    anew = draw(st.booleans())
    messages: list[BaseMessage] = []
    for kind in draw(st.lists(st.sampled_from("hat"), max_size=10)):
        place = len(messages)
        if kind == "h":
            messages.append(HumanMessage("ask", id=f"h{place}"))
        elif kind == "a":
            messages.append(AIMessage("say", id=f"a{place}"))
        else:
            count = draw(st.integers(1, 3))
            calls = [f"call_{at}" if anew else f"call_{place}_{at}" for at in range(count)]
            names = draw(st.lists(tool_names, min_size=count, max_size=count))
            messages.append(ai(draw(_texts), *calls, id=f"a{place}", names=names))
            messages += [result(call, f"t{place}{call}") for call in calls]
    return messages


def order_kept(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> bool:
    """Tell whether the messages beside tool results stand as they stood; a repeated id stands at its first place."""
    place: dict[object, int] = {}
    for at, message in enumerate(before):
        place.setdefault(message.id if message.id is not None else id(message), at)
    found = [place[m.id if m.id is not None else id(m)] for m in after if not isinstance(m, ToolMessage)]
    return found == sorted(found)


def stored(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Give every message an id, and each id one message, as a store does."""
    named = {message.id or f"s{at}": message for at, message in enumerate(messages)}
    return [message.model_copy(update={"id": id}) for id, message in named.items()]
