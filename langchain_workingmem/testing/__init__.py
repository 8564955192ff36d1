"""For tests of applications and of stores; it needs pytest."""

try:
    import pytest  # noqa: F401
except ImportError as error:
    msg = "langchain_workingmem.testing needs its extra: pip install 'langchain-workingmem[testing]'"
    raise ImportError(msg) from error
