"""The line of a vLLM log in which its server says why it ends. Pure; called by `server.py`.

A traceback ends in it, but more lines follow: links, the ends of other processes of the server.
"""

import re

_OF_PROCESS = r"(?:\(\w+ pid=\d+\) )?(?:(?:ERROR|CRITICAL) \S+ \S+ \[\S+\] )?"
_FAULT = re.compile(
    rf"^{_OF_PROCESS}\s*("
    r"(?:[\w.]*(?:Error|Exception)|Value error|Assertion failed)\b[:,] .*"
    r"|\S+: [Ee]rror\b.*)$"
)
_ELSEWHERE = "root cause above"
"""Words of vLLM's API server about a fault in another of its processes."""


def last_fault(log: str) -> str:
    """Return the last fault that a log names, empty if it names none."""
    faults = [match[1] for line in log.splitlines() if (match := _FAULT.match(line))]
    return next((fault for fault in reversed(faults) if _ELSEWHERE not in fault), "")
