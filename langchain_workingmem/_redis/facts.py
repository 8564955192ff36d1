"""What the store knows of a message beside its body: the members of the sorted sets of a thread."""

from __future__ import annotations

from typing import NamedTuple

STRIDE = 4096  # what was said has multiples of it as seqs, tool traffic the numbers between (write.lua)


class Facts(NamedTuple):
    """A stored message without its body. docs/storage-layout.md has each part."""

    seq: int
    words: str  # q, a or as and a digest of what was said; empty for tool traffic; a ! at the end: a provider has refused it
    tokens: int  # of the message, with its tool calls
    upto: int  # of all that was said in the thread up to it
    writer: str  # "" a program, l a list, b what stood in front of the first turn, s<seq> a checkpointer's state
    vectors: str  # <settings>/<size>/<chunks>, empty without
    id: str
    text: str  # as it stands in the set
    is_current: bool = True

    @classmethod
    def read(cls, text: str, *, is_current: bool = True) -> Facts:
        """Read a member."""
        seq, words, tokens, upto, writer, vectors, id = text.split(":", 6)
        return cls(int(seq), words, int(tokens), int(upto), writer, vectors, id, text, is_current)

    @property
    def is_refused(self) -> bool:
        """Tell whether a provider has refused the message, so that no model is shown it."""
        return self.words.endswith("!")

    @property
    def is_structured(self) -> bool:
        """Tell whether the message is a structured answer."""
        return self.words.startswith("as")

    @property
    def settings(self) -> str:
        """Return the digest of the settings of its vectors, empty without vectors."""
        return self.vectors.partition("/")[0]
