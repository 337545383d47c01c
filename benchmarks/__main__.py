"""Benchmarks: `python -m benchmarks NAME [arguments]` runs one; without a name it lists them.

A benchmark is a module of this folder with a `main`, which prints one line of JSON. It gets the
arguments if it has a parameter for them.
"""

import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

_PARTS = {"__init__", "__main__"}


def names() -> list[str]:
    """Return the names of all benchmarks."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(
        file.stem
        for file in files
        if file.stem not in _PARTS and "\ndef main(" in file.read_text(encoding="utf-8")
    )


def main() -> None:
    """Run the benchmark that the first argument names."""
    known = names()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(f"{__doc__}\nbenchmarks: {', '.join(known)}")
    name, *arguments = sys.argv[1:]
    sys.argv = [f"benchmarks {name}", *arguments]
    benchmark = import_module(f"benchmarks.{name}").main
    benchmark(*[arguments][: len(signature(benchmark).parameters)])


if __name__ == "__main__":
    main()
