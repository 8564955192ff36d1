"""What a message tells: words by which messages can be told apart, and which messages are about themselves."""

from langchain_workingmem._text.telling.kinds import asks_about_you, is_order, is_thanks, without_times
from langchain_workingmem._text.telling.words import (
    as_searched,
    count_shared,
    goes_on,
    is_question,
    language_of,
    telling_words,
)

__all__ = [
    "as_searched",
    "asks_about_you",
    "count_shared",
    "goes_on",
    "is_order",
    "is_question",
    "is_thanks",
    "language_of",
    "telling_words",
    "without_times",
]
