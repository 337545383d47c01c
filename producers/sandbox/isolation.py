"""A command's isolation: bubblewrap where it works, else only the kernel's limits.

Pure, apart from one trial.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives")
_TRIAL_S = 30.0
_PATH = "/usr/local/bin:/usr/bin:/bin"
INSIDE = "/sandbox"
"""The command's directory, as it sees it in bubblewrap."""


class Isolation(Enum):
    """Means that keep a command in its directory."""

    BUBBLEWRAP = "bubblewrap"
    PROCESSES = "processes"
    """Its own process session and the kernel's limits, without a wall."""

    @property
    def not_prevented(self) -> Sequence[str]:
        """Return what a command can still do."""
        everywhere = ("filling the disk with many files",)
        if self is Isolation.BUBBLEWRAP:
            return everywhere
        return (
            "reading and writing all files of this user",
            "the network",
            "signals to all processes of this user",
            *everywhere,
        )


def wrapped(
    command: Sequence[str],
    directory: Path,
    network: bool,
    readable: Sequence[str] = (),
    folders: Mapping[str, Path] | None = None,
    first: bool = False,
) -> list[str]:
    """Return the command in bubblewrap.

    It sees the system's programs, this Python, the `readable` paths, and its directory. It can
    write only this directory, `folders` and a private `/tmp`. `folders`: further directories, each
    under the path by which the command knows it. `first`: the command is process 1, which no other
    process inside can end.
    """
    places = dict.fromkeys((*_SYSTEM, sys.base_prefix, sys.prefix, *readable))
    arguments = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]
    if network:
        arguments.append("--share-net")
        places |= dict.fromkeys(("/etc/resolv.conf", "/etc/hosts", "/etc/ssl"))
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    arguments += ["--tmpfs", "/tmp"]  # nosec B108 # one inside; places may be in it
    for place in places:
        if Path(place).is_symlink() and place in _SYSTEM:
            arguments += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).exists():
            arguments += ["--ro-bind", str(Path(place).resolve()), place]
    for place, folder in {**(folders or {}), INSIDE: directory}.items():
        arguments += ["--bind", str(folder), place]
    if first:
        arguments.append("--as-pid-1")
    return [*arguments, "--chdir", INSIDE, "--", *command]


def environment(
    isolation: Isolation, directory: Path, prefixes: Sequence[str] = ()
) -> dict[str, str]:
    """Return a command's whole environment: nothing from this process, which has keys."""
    home = INSIDE if isolation is Isolation.BUBBLEWRAP else str(directory)
    path = ":".join((*(f"{prefix}/bin" for prefix in prefixes), _PATH))
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


@cache
def isolation_here() -> Isolation:
    """Return the best isolation that works on this machine, by one trial in each process."""
    if shutil.which("bwrap") is None:
        return Isolation.PROCESSES
    try:
        trial = subprocess.run(  # nosec B603 # a list, no shell
            wrapped(["true"], Path("/usr"), network=False), capture_output=True, timeout=_TRIAL_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return Isolation.PROCESSES
    return Isolation.BUBBLEWRAP if trial.returncode == 0 else Isolation.PROCESSES
