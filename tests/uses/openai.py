"""The extra `openai`, without a call: OPENAI_API_KEY=none python openai.py."""

from __future__ import annotations

from langchain_workingmem import Memory, RecallOptions, TitleOptions

Memory(embeddings="openai:a", recall=RecallOptions(), title=TitleOptions(model="openai:b"))
