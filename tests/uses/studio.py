"""The extra `studio`: python -P studio.py URL PREFIX."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request

from langchain_workingmem import Memory
from langchain_workingmem.studio import Studio, application

URL, PREFIX = sys.argv[1:]

with Memory(URL, key_prefix=PREFIX) as memory:
    memory.save_turn([("user", "Hello.")], thread_id="t", user_id="maya")
    application(Studio(memory=memory, token="a-token"))
words = ["--url", URL, "--key-prefix", PREFIX, "--embeddings", "none"]
command = [sys.executable, "-P", "-m", "langchain_workingmem.cli", "studio", *words]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as studio:
    assert studio.stdout
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(studio.stdout.readline().strip()) as page:
        assert b"maya" in page.read()
    studio.terminate()
assert studio.returncode == 0
