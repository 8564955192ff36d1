"""Pictures, audio and files in messages: what they are, their names, and what they cost a model."""

from langchain_workingmem._text.media.blocks import (
    SHORT,
    Unread,
    attachment,
    has_media,
    kind_of,
    media_in,
    named_media,
    short_words,
    strings_in,
    unread,
)
from langchain_workingmem._text.media.tokens import media_tokens

__all__ = [
    "SHORT",
    "Unread",
    "attachment",
    "has_media",
    "kind_of",
    "media_in",
    "media_tokens",
    "named_media",
    "short_words",
    "strings_in",
    "unread",
]
