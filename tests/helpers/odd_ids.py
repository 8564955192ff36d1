"""Ids that end a key or a query early or look like each other, and secrets that tell who has seen what."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory

NAMES = [
    *["a", "A", "b", "B", "ab", "aa", "a0", "a|b", "a,b", "a;b", "a:b", "a::b", "a.b", "a/b", "a\\b", "a\\|b", "a&b"],
    *["a-b", "a_b", "_", "__", "a~b", "a+b", "a b", " a", "a ", "a  b", "a\tb", "a\nb", "\ta", "a\u00a0b"],
    *["a\u200bb", "a\u3000b", "a*", "*", "**", "?", "a?", "*a", "w'a*'", "%", "a%", "%a%", "%%a%%", "%61", "%2561"],
    *["a%20b", "a%7Cb", "a%2Cb", "{a}", "{", "}", "a}b{", "a}", "{a", "{}", "{a|b}", "a} | @user:{b", "-a", "!a"],
    *["~a", "@a", "$a", "$vector", "(a|b)", "(a)", ")", "[a b]", "[", "<a>", "'a'", '"a"', "'", '"', "`a`"],
    *["@user:{a}", "@user:{*}", "a}) | (@user:{b", "*=>[KNN 9 @vector $vector]", "a=>{$weight:1}", "#a", "=a", "\\"],
    *["\\\\", "\\a", "a\\", "a\\,b", "a\\}", "🍒", "🍓", "👩\u200d👩\u200d👧", "👩", "ß", "ss", "ẞ", "\u0131", "I"],
    *["i", "\u0130", "\u2126", "\u03a9", "\ufb01", "fi", "\u0430", "\uff41", "José", "Jose\u0301", "\x7f", "\u202ea"],
    *["e\u0301", "\u0661", "a\r\nb", "a=>b", "$x", "nan", "01", "1", "+1", "😀" * 127 + "😁", "é" * 255 + "ab"],
    *["null", "None", "nil", "true", "0", "-1", "1e3", "inf", "the", "of", "user", "wm", "wm:thread:{a}", "x" * 512],
    *["x" * 511 + "y", "é" * 256, "é" * 255],
]
NASTY_IDS = [*dict.fromkeys([*NAMES[::3], *NAMES[-3:]])]  # for tests that make threads of each


def secret(name: str) -> str:
    return f"secret{NAMES.index(name)}x"


def told(reply: object) -> str:
    """Write all that a reply holds."""
    parts: Any = reply if isinstance(reply, list | tuple) else []
    if is_dataclass(reply):
        parts = [getattr(reply, field.name) for field in fields(reply)]
    return " ".join([f"{reply!r} {reply}", *map(told, parts)])


def secrets_in(*replies: object) -> set[str]:
    """Return whose secrets stand in replies."""
    text = " ".join(map(told, replies))
    return {name for name in NAMES if secret(name) in text}


def tell(memory: Memory, name: str, *, thread: str | None = None, user: str | None = None) -> None:
    words = [HumanMessage(f"the pin of mine is {secret(name)}", id="m0"), AIMessage(f"noted {secret(name)}", id="m1")]
    thread = name if thread is None else thread
    user = name if user is None else user
    memory.threads.create(thread_id=thread, user_id=user, title=secret(name), metadata={"pin": "mine"})
    memory.history.append(words, thread_id=thread, user_id=user)
