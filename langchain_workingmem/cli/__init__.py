"""The command line, `workingmem`: needs the extra `cli`.

`main` lists the commands, and makes one of a function when it is called; `help` shows and completes them. `base` opens memories and
turns errors into exit codes, `streams` reads and prints. The other modules hold the commands.
"""

import sys

try:
    import platformdirs  # noqa: F401
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError as error:
    sys.exit(f"workingmem needs its extra: pip install 'langchain-workingmem[cli]' ({error})")

try:
    from langchain_workingmem.cli.main import app
except KeyboardInterrupt:  # during the import, which takes a moment
    sys.exit(130)

__all__ = ["app"]
