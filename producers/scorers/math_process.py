"""Process that compares mathematical answers: one object a line in, one score a line out.

Its first line is "ready".

`mathematics.py` starts it. A comparison has limits on CPU time and memory. If it reaches one, the
score is 0. The library's own limits count wall-clock time, and a busy machine would make right
answers wrong.
"""

import json
import logging
import resource
import signal
import sys

from math_verify import parse, verify

_CPU_S = 10.0
_MEMORY_BYTES = 4 << 30


class _TooHard(BaseException):
    """A comparison that takes too long. No library catches a `BaseException` as its own error."""


def compare(answer: str, reference: str) -> float | None:
    """Return 1.0 or 0.0, or None for a reference that has no mathematics."""
    wanted = parse(_framed(reference), parsing_timeout=None)
    if not wanted:
        return None
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    try:
        named = parse(_framed(answer), parsing_timeout=None)
        return float(verify(wanted, named, timeout_seconds=None))
    except (_TooHard, MemoryError, RecursionError):
        return 0.0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    """Answer lines until the parent has closed its end."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        print(json.dumps(compare(asked["answer"], asked["reference"])), flush=True)


def _framed(text: str) -> str:
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def _stop(*_: object) -> None:
    raise _TooHard


if __name__ == "__main__":
    main()
