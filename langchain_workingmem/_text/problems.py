"""What Pydantic finds wrong, in words of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

UNKNOWN = "it is not known here"
_IN_JSON = {  # kinds of problems whose words are of Python
    **dict.fromkeys(("dict_type", "model_type", "dataclass_type"), "Input should be an object"),
    **dict.fromkeys(("list_type", "set_type", "tuple_type"), "Input should be an array"),
    "extra_forbidden": UNKNOWN,
}


def problems_in(error: ValidationError) -> list[tuple[str, str]]:
    """Return each field, with dots for nested ones, and what is wrong with it."""
    found = (
        (one["loc"], _IN_JSON.get(one["type"], one["msg"]))
        for one in error.errors(include_url=False, include_input=False)
    )
    return [
        (".".join(map(str, at)), said.removeprefix("Value error, ").replace(" after validation", ""))
        for at, said in found
    ]
