"""Working memory that keeps itself: the messages behind every value, since when it holds, and what held before."""

from langchain_workingmem.keeping import hooks as hooks
from langchain_workingmem.keeping.shown import messages_behind as messages_behind
from langchain_workingmem.keeping.shown import undo as undo
