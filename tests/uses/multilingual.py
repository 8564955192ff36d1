"""The extra `multilingual`: python multilingual.py."""

from __future__ import annotations

from langchain_workingmem import MultilingualEmbeddings

assert len(MultilingualEmbeddings().embed_query("dog")) == 512
