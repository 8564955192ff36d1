"""Every error says what helps: in its words, and alone as `error.remedy`."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

from langchain_workingmem import errors
from langchain_workingmem.errors import WorkingMemError

CLASSES = {name: one for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, WorkingMemError)}
OWN: dict[str, tuple[Any, ...]] = {  # classes that know their remedy, with arguments for them
    "MemoryClosedError": (),
    "MessageNotFoundError": ("m", "t"),
    "ThreadOwnershipError": ("t", "ann"),
    **{f"Thread{kind}Error": ("t",) for kind in ("NotFound", "Exists", "Conflict", "Damaged")},
    "UserDeletedError": ("ann",),
    "RevisionNotFoundError": (3,),
    "ObservationNotFoundError": ("t:1",),
    "FileMissingError": ("/a.md",),
    "FileConflictError": ("/a.md", 3, "one"),
}
SIZES = {"expected": 3, "actual": 4}
MORE: dict[str, dict[str, Any]] = {"WorkingMemoryConflictError": SIZES, "EmbeddingSizeError": SIZES}
MORE |= {name: {"problem": "cannot be used"} for name in ("FilePathError", "FileEditError")}


def made(name: str) -> WorkingMemError:
    if name in OWN or name == "WorkingMemoryConflictError":
        return CLASSES[name](*OWN.get(name, ()), **MORE.get(name, {}))
    return CLASSES[name]("seen", remedy="do this", **MORE.get(name, {}))


def test_an_error_says_its_remedy_in_its_words_and_alone_also_when_it_is_copied_or_pickled() -> None:
    for error in map(made, CLASSES):
        assert error.remedy
        assert str(error).endswith(f": {error.remedy}")
        for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
            assert type(other) is type(error)
            assert (str(other), vars(other)) == (str(error), vars(error))
