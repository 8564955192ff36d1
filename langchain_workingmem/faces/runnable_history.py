"""Tells a chat history whether RunnableWithMessageHistory of langchain-core reads it, and at which step of a run.

LangChain does not say: it reads a history when a run begins, and again when it ends. So this module looks at the frame of the
caller: its module, the name of its function, and its local variable `input_messages`. This is no public interface; it works
with langchain-core 1.7.0 to 1.8.2.

In a version that names its functions differently, histories still work, and one warning is logged. But a run may then save
too few of its messages, or restore deleted ones, when others write to the thread at the same time. If the class moves to
another module, the same happens without a warning.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import TYPE_CHECKING, Literal

import langchain_core

if TYPE_CHECKING:
    from types import FrameType

    from langchain_core.messages import BaseMessage

_log = logging.getLogger("langchain_workingmem")
_MODULE = "langchain_core.runnables.history"
_BEGINS = {"_enter_history", "_aenter_history"}
_ENDS = {"_exit_history", "_aexit_history"}


def is_from_config() -> bool:
    """Tell whether RunnableWithMessageHistory called the caller of this function, with ids from the config.

    Any module of langchain-core counts, so that ids of a client are checked even if the class moves.
    """
    return _module_of(sys._getframe(2)).startswith("langchain_core.")  # noqa: SLF001 - see the docstring of the module


def step_of_run() -> Literal["begins"] | list[BaseMessage] | None:
    """Tell for which step of a run RunnableWithMessageHistory called the caller of this function.

    "begins", or at its end the input of the run with its history. None: another caller, or an unknown version.
    """
    caller = sys._getframe(2)  # noqa: SLF001 - see the docstring of the module
    if _module_of(caller) != _MODULE:
        return None
    name, given = caller.f_code.co_name, caller.f_locals.get("input_messages")
    if name in _BEGINS:
        return "begins"
    if name in _ENDS and isinstance(given, list):
        return given
    _warn_once(langchain_core.__version__)
    return None


def _module_of(caller: FrameType) -> str:
    return str(caller.f_globals.get("__name__"))


@cache
def _warn_once(version: str) -> None:
    _log.warning(
        "langchain-core %s reads chat histories in an unknown way: when others write to a thread during a run of "
        "RunnableWithMessageHistory, its messages may be lost; use langchain-core 1.7.0 to 1.8.2, or MemoryMiddleware",
        version,
    )
