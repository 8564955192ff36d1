"""What files offer to the rooms below (`_redis/rooms.py`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from langchain_workingmem._redis.rooms import WINGS
from langchain_workingmem.files import archive

if TYPE_CHECKING:
    from langchain_workingmem._redis.rooms import Wing

exported = archive.export
merged_into = archive.merge
record = archive.FileRecord

WINGS["files"] = cast("Wing", sys.modules[__name__])
