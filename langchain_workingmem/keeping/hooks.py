"""What the values of working memories offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from langchain_workingmem._redis.rooms import HOOKS
from langchain_workingmem.keeping import shown
from langchain_workingmem.keeping.keeper import runs
from langchain_workingmem.keeping.store import archive, changing, merging
from langchain_workingmem.keeping.store import forgetting as forgotten

if TYPE_CHECKING:
    from langchain_workingmem._redis.rooms import Room

change = changing.change
write = changing.write
rendered = changing.rendered
read = shown.read
undo = shown.undo
keep = runs.keep
keep_later = runs.keep_later
forgetting = forgotten.forgetting
moved = forgotten.moved
copied = archive.copied
exported = archive.exported
merged_into = merging.merged_into

HOOKS["keeping"] = cast("Room", sys.modules[__name__])
