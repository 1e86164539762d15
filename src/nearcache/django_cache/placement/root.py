"""``sudo manage.py``: root has shared caches of its own, and the site does not see what it clears.

Only caches that have a name and no path: a path is one file for all, and refused to who does
not own it. A name is a file of the user who runs, in that user's directory.
"""

from __future__ import annotations

import glob
import logging
import os
import pwd
import stat
from collections.abc import Iterator

from nearcache.base.per_process import once
from nearcache.engines.shm import SUFFIX, default_directory, is_used

logger = logging.getLogger("nearcache.shm")


def problem(base: str) -> str | None:
    """What is wrong with root's use of that cache, or None.

    ``base`` is the path of a named cache's files. Wrong it is when sudo made somebody root, or
    when another user's processes have the cache of this name open.
    """
    if os.geteuid() != 0:
        return None
    by_sudo = os.environ.get("SUDO_UID", "0") != "0"
    users = [who for who, theirs in _elsewhere(base) if by_sudo or is_used(theirs)]
    if not users and not by_sudo:
        return None
    if users:
        whose, who = f"that of user {' and '.join(map(repr, users))} is another one", users[0]
    else:
        whose, who = (
            f"sudo was called by {os.environ.get('SUDO_USER', 'another user')!r}",
            "SITE_USER",
        )
    return (
        f"{base} is a cache of root's own, and {whose}: a site that runs as another user does not"
        f" see what is set or cleared here. Run `sudo -u {who} manage.py ...` instead"
    )


def warn(base: str) -> None:
    """One line in the log of this process, if there is a problem with any of its caches."""
    said = problem(base)
    mine = object()
    if said and once("rooted", lambda: mine) is mine:  # not inside: it may log, see `once`
        logger.warning("%s", said)


def _elsewhere(base: str) -> Iterator[tuple[str, str]]:
    """Other users with a cache of this name, and the path of its files."""
    own, name = default_directory(), os.path.basename(base)
    for path in sorted(own.parent.glob(f"nearcache-*/{glob.escape(name)}{SUFFIX}")):
        try:
            directory = path.parent.lstat()
        except OSError:
            continue
        # Anybody may make a directory there: only a user's own, and no link, speaks for them.
        theirs = own.with_name(f"nearcache-{directory.st_uid}")
        if path.parent == theirs != own and stat.S_ISDIR(directory.st_mode):
            yield _name_of(directory.st_uid), str(path.with_name(name))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"  # as sudo writes a user without a name
