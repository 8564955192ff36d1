"""Who owns a data directory and its parents: no other user may replace our server with another one."""

import os
import stat
from pathlib import Path

from langchain_workingmem.errors import OptionError


def check(directory: Path) -> None:
    """Refuse a directory in which another user can put a socket, a configuration or data, or which one can replace.

    The owner of a parent directory can replace it too. That is no error: root may work in the home of a user, or in a
    container with a mounted project.
    """
    state = directory.stat()
    if state.st_uid != os.geteuid():
        raise OptionError(
            f"{directory} belongs to the user with the number {state.st_uid}, who could read and replace its content; this process runs as {os.geteuid()}",
            remedy="choose a directory of your own, or chown this one",
        )
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OptionError(
            f"other users may write to {directory}, and could put their own server there",
            remedy="run chmod go-w on it, or choose a directory of your own",
        )
    for parent in directory.parents:
        state = parent.stat()
        # a umask of 002, used where each user has a group, opens directories to that group
        writers = stat.S_IWOTH if state.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP
        if state.st_mode & writers and not state.st_mode & stat.S_ISVTX:
            raise OptionError(
                f"other users may write to {parent}, and could replace {directory}",
                remedy="run chmod go-w on it, or chmod +t if they need to write there, or choose another directory",
            )
