"""One call of a hook of an agent: its ids, and the facts that LangGraph gives about its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.config import get_config

from langchain_workingmem.faces.ids import Owner, outer_run, owned, resolve
from langchain_workingmem.faces.nodes import kind_of
from langchain_workingmem.faces.per_call import PerCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.history import Kind
    from langchain_workingmem.options import Ids

Key: TypeAlias = (
    "tuple[Ids, Ids, str]"  # ids that the run names, ids of the memory that it uses, the agent within the run
)


@dataclass(frozen=True, slots=True)
class HookCall:
    """The facts of one hook call: the conversation as it is now, its ids, and the config of the run."""

    messages: Sequence[BaseMessage]
    run_ids: Ids  # that the run names
    ids: Ids  # with the owner that the program has fixed
    namespace: str  # LangGraph's name for the agent within its run
    limits: PerCall
    kind: Kind
    is_nested: bool  # the agent runs inside a tool of another agent
    has_answer: bool = False  # the model has just given a structured answer

    @classmethod
    def of(cls, state: Any, runtime: Any, owner: Owner | None, *, trust_client_ids: bool) -> HookCall:
        """Find the ids as `resolve` does, and read the rest from the state and the config of the run."""
        config = get_config()
        named = resolve(config, runtime=runtime, trust_client_ids=trust_client_ids)
        ids = owned(named, owner)
        namespace: str = config.get("configurable", {}).get("checkpoint_ns", "")
        is_nested = _is_nested(namespace, ids)
        kind: Kind = "part" if is_nested else kind_of(config)
        own, limits, has_answer = namespace.rpartition("|")[0], PerCall.of(config), state.get("structured_response")
        return cls(state["messages"], named, ids, own, limits, kind, is_nested, has_answer is not None)

    @property
    def key(self) -> Key:
        """Return what the turn is kept under."""
        return self.run_ids, self.ids, self.namespace


def _is_nested(namespace: str, ids: Ids) -> bool:
    """Tell whether this agent runs inside a tool of another one, which has the same thread_id.

    The middleware of the other one says so. Without one, LangGraph's usual name for the node of the tools does.
    """
    if (outer := outer_run.get()) is not None:
        return outer.ids.thread_id == ids.thread_id
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])


def later_hooks(config: RunnableConfig) -> tuple[Mapping[str, Any], list[str]]:
    """Return the LangGraph channels of a run, and the names of the `after_agent` hooks that follow the last one of memory.

    These hooks belong to middleware in front of memory. The channels hold the last state, and the channel of a hook has a value
    while the hook is due or runs.
    """
    read = config.get("configurable", {}).get("__pregel_read")
    channels = next((one for one in getattr(read, "args", ()) if isinstance(one, Mapping) and "messages" in one), {})
    hooks = [name for name in channels if name.endswith(".after_agent")]
    own = f"branch:to:{(config.get('metadata') or {}).get('langgraph_node')}"
    later = hooks[: hooks.index(own)] if own in hooks else []
    return channels, [name for name in later if not name.startswith("branch:to:MemoryMiddleware")]
