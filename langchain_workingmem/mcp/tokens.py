"""Whose token a request over HTTP holds."""

from __future__ import annotations

import re
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST = 16  # characters of a token
_TOKEN = re.compile(r"[!-~]+")
_MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"


def check_tokens(tokens: Iterable[tuple[str, str]]) -> list[tuple[bytes, str]]:
    """Return the digests of tokens with their users. An error says which token is wrong, never the token itself."""
    digests: dict[bytes, str] = {}
    for number, (token, user) in enumerate(tokens, 1):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) < SHORTEST:
            problem = f"token {number} is shorter than {SHORTEST} characters, or holds other ones than visible ASCII"
            raise OptionError(problem, remedy=_MAKE)
        digest = sha256(token.encode()).digest()
        if digest in digests:
            raise OptionError(f"token {number} stands there twice", remedy="give each token one user")
        digests[digest] = check_id(user, f"the user of token {number}")
    if not digests:
        raise OptionError("there is no token", remedy="pass an object such as {TOKEN: USER}")
    return list(digests.items())


def user_of(headers: Iterable[tuple[bytes, bytes]], digests: list[tuple[bytes, str]]) -> str | None:
    """Return the user whose token the headers of a request hold; None without a known one."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    digest = sha256(token.strip()).digest()
    users = [user for known, user in digests if compare_digest(known, digest)]  # each is compared, in equal time
    return users[0] if users else None
