"""The extra `local`: python local.py."""

from __future__ import annotations

from langchain_workingmem import LocalEmbeddings

assert len(LocalEmbeddings().embed_query("dog")) == 256
