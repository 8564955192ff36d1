"""The command line, `workingmem`: needs the extra `cli`.

`main` lists the commands, which the other modules hold. `base` has the options that commands share, and opens memories; `streams` reads
and prints.
"""

import sys

try:
    import platformdirs  # noqa: F401
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError as error:
    sys.exit(f"workingmem needs its extra: pip install 'langchain-workingmem[cli]' ({error})")

from langchain_workingmem.cli.main import app

__all__ = ["app"]
