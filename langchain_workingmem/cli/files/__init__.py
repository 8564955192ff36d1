"""`files`: list, read and change the files of a user, a team or an agent.

`shared` says whose, and how a file is shown; `reading` and `writing` hold the commands.
"""

from langchain_workingmem.cli.files import reading, writing
from langchain_workingmem.cli.files.shared import KEPT, opened

COMMANDS = (*reading.COMMANDS, *writing.COMMANDS)

__all__ = ["COMMANDS", "KEPT", "opened"]
