"""Benchmarks: `python -m benchmarks NAME [arguments]` runs one; without a name it lists them.

A benchmark is a module with a `main`, in this folder, `peers` or `scheduling`. It prints one line
of JSON, and gets the arguments if it has a parameter for them. In a name `-` counts as `_`.
"""

import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

_PARTS = {"__init__", "__main__"}
_FOLDERS = ("benchmarks", "benchmarks.peers", "benchmarks.scheduling")


def modules() -> dict[str, str]:
    """Return all benchmarks' modules by name."""
    root = Path(__file__).parent.parent
    return {
        file.stem: f"{folder}.{file.stem}"
        for folder in _FOLDERS
        for file in sorted((root / folder.replace(".", "/")).glob("*.py"))
        if file.stem not in _PARTS and "\ndef main(" in file.read_text(encoding="utf-8")
    }


def main() -> None:
    """Run the benchmark that the first argument names."""
    by_name = modules()
    name, *arguments = sys.argv[1:] or [""]
    name = name.replace("-", "_")
    if name not in by_name:
        sys.exit(f"{__doc__}\nbenchmarks: {', '.join(sorted(by_name))}")
    sys.argv = [f"benchmarks {name}", *arguments]
    benchmark = import_module(by_name[name]).main
    benchmark(*[arguments][: len(signature(benchmark).parameters)])


if __name__ == "__main__":
    main()
