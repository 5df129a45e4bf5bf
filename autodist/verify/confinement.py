"""The last line of defence: the system refuses what a run writes outside its folders, also from C++ and other programs.

Linux has Landlock for that, which needs no privileges. Where it is missing, what Python opens is led elsewhere all the
same, and only what other libraries and programs write is not held back.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls; their numbers are the same on all architectures."""
VERSION = 1
PATH_BENEATH = 1
NO_NEW_PRIVILEGES = 38
WRITE_FILE = 1 << 1
CHANGES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Write a file, remove and make entries."""
REFER, TRUNCATE = 1 << 13, 1 << 14


class RulesetAttributes(ctypes.Structure):
    """As in ``linux/landlock.h``."""

    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class PathBeneath(ctypes.Structure):
    """As in ``linux/landlock.h``."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(folders: Sequence[str]) -> bool:
    """Let this process and its children change nothing but what is below these folders.

    False where the system has no such thing.
    """
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)
        if version < 2:
            return False  # files could not be moved between folders
        handled = CHANGES | REFER | (TRUNCATE if version >= 3 else 0)
        attributes = RulesetAttributes(handled)
        rules = libc.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0)
        if rules < 0:
            return False
        try:
            for folder in folders:
                allow(libc, rules, folder, handled)
            return bool(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(RESTRICT_SELF, rules, 0) == 0)
        finally:
            os.close(rules)
    except (OSError, AttributeError):
        return False


def allow(libc: ctypes.CDLL, rules: int, folder: str, access: int) -> None:
    """Changes below one folder."""
    handle = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        beneath = PathBeneath(access, handle)
        if libc.syscall(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(beneath), 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot allow changes", folder)
    finally:
        os.close(handle)
