"""Prefixes of topics that a user names in a command. Pure."""

import re

from seamlessflow.infra.errors import SettingsRejected

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[._-]")


def check_prefix(option: str, prefix: str) -> None:
    """Raise `SettingsRejected` for a prefix without a name, or that runs into those of topics."""
    if not _PREFIX.fullmatch(prefix):
        reason = "is no prefix, such as again. with letters or digits and a dot, - or _ at its end"
        raise SettingsRejected(option, f"{prefix!r} {reason}")
