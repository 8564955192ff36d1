"""The page about web servers and apps: a program that is used, then forked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.models import said
from tests.helpers.programs import run as forked

PAGE = Path(__file__).parents[2] / "docs/how-to/web.md"
CODE = re.compile(r"^```(?:python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
*_, SHOP, _ = CODE.findall(PAGE.read_text())

# what a pre-fork server does: it loads the program, uses it, and forks processes that answer requests at once
SERVER = """
import os, threading
{shop}

def ask(user, text):
    environ = {{"REMOTE_USER": user, "QUERY_STRING": text}}
    return b"".join(app(environ, lambda *_: None)).decode()

assert ask("maya", "before") == "1 messages"
children = []
for number in range(3):
    if not (pid := os.fork()):
        told = []
        users = [f"{{user}}{{number}}" for user in ("maya", "omar")]
        threads = [threading.Thread(target=lambda id=id: told.append(ask(id, "one") + ask(id, "two"))) for id in users]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [hit.message.text for hit in memory.recall.search("two", user_id=users[0]).hits]
        memory.close()
        os._exit(0 if told == ["1 messages3 messages"] * 2 and "two" in found else 1)
    children.append(pid)
assert ask("maya", "meanwhile") == "3 messages"
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert codes == [0, 0, 0], codes
assert ask("maya", "after") == "5 messages"
memory.close()
"""


def test_processes_that_are_forked_after_memory_was_used(server: EmbeddedRedis, prefix: str, plain: Memory) -> None:
    assert "Memory.embedded(" in SHOP
    shop = SHOP.replace("Memory.embedded(", f"Memory({server.url!r}, key_prefix={prefix!r}, ")
    done = forked([sys.executable, "-c", SERVER.format(shop=shop)], of="library")
    assert (done.returncode, done.stderr) == (0, "")
    whole = ["human: one", "ai: 1 messages", "human: two", "ai: 3 messages"]
    for user in ("maya", "omar"):
        for number in range(3):
            owner = f"{user}{number}"
            assert said(plain.history.messages(f"{owner}-help", user_id=owner)) == whole
    assert plain.threads.list().total == 7
