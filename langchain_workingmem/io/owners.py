"""Whose a data directory is, and its parents: no other user may put a server of his own in the place of ours."""

import os
import stat
from pathlib import Path

from langchain_workingmem.errors import OptionError


def check(directory: Path, state: os.stat_result) -> None:
    """Refuse a directory in which another user can put a socket, a configuration or data of his own."""
    if state.st_uid != os.geteuid():
        raise OptionError(
            f"{directory} belongs to the user with the number {state.st_uid}, who could read and replace what is in "
            f"it; this process runs as {os.geteuid()}",
            remedy="choose a directory of your own, or chown this one",
        )
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OptionError(
            f"other users may write to {directory}, and could put a server of their own there",
            remedy="run chmod go-w on it, or choose a directory of your own",
        )


def check_parent(parent: Path, state: os.stat_result, directory: Path) -> None:
    """Refuse a parent directory in which any user can rename ours away, and put one of his own in its place.

    Whoever owns a parent can, too; but root in somebody's home, or in a container beside a mounted project, is no mistake.
    """
    # with a umask of 002, which goes with a group for each user, parents are open to the group
    open_to = stat.S_IWOTH if state.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP
    if state.st_mode & open_to and not state.st_mode & stat.S_ISVTX:
        raise OptionError(
            f"other users may write to {parent}, and could replace {directory}",
            remedy="run chmod go-w on it, or chmod +t if they need to write there, or choose another directory",
        )
