"""The tests. Their compiled modules are kept: rewriting the asserts takes half of a short run."""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # of the programs that the tests start, too
