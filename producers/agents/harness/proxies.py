"""Calls of agents go to the gateway itself, whatever proxy the environment names. Pure.

A proxy of a company does not reach a gateway on this host or its network, and would read the
sessions' keys. Called by `agent.py` and `command.py`.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

_NAMES = ("no_proxy", "NO_PROXY")
"""Names of the variable; some libraries read one, some the other."""


def exempted(environment: Mapping[str, str], url: str) -> Mapping[str, str]:
    """Return the variables that exempt the URL's host from the proxies of the environment.

    Hosts that are exempted already stay so. Ports are left out: not all libraries know them there.
    """
    host = urlsplit(url).hostname or ""
    present = {name: environment[name] for name in _NAMES if name in environment}
    changed = {}
    for name in _NAMES:
        hosts = present.get(name, next(iter(present.values()), ""))
        listed = [entry.strip() for entry in hosts.split(",") if entry.strip()]
        if not {host, "*"} & set(listed) and host:
            listed.append(host)
        changed[name] = ",".join(listed)
    return changed
