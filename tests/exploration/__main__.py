"""`scripts/explore`: an exploration with bounds of your own."""

import argparse
import gc
import sys
import time
from dataclasses import fields

from tests.exploration.bounds import Bounds
from tests.exploration.explorer import Counterexample, Exploration, explore


def main() -> int:
    """Explore; return 1 if a property does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/explore", description=__doc__)
    for bound in fields(Bounds):
        parser.add_argument(f"--{bound.name}", type=type(bound.default), default=bound.default)
    parser.add_argument("--most-states", type=int, default=10**9, help="end after so many")
    parser.add_argument("--limit-s", type=float, default=10**9, help="end after so many seconds")
    arguments = vars(parser.parse_args())
    most_states, limit_s = arguments.pop("most_states"), arguments.pop("limit_s")
    # Worlds have no cycles, and there are many of them.
    gc.disable()
    began = time.monotonic()

    def report(graph: Exploration) -> None:
        took = time.monotonic() - began
        print(
            f"{took:7.0f} s: {graph.states:,} states, {graph.transitions:,} transitions, "
            f"{graph.states / took:,.0f} states/s",
            flush=True,
        )

    try:
        graph = explore(Bounds(**arguments), most_states, limit_s, report)
    except Counterexample as counterexample:
        print(counterexample)
        return 1
    report(graph)
    rest = f"; {graph.open:,} of them not continued" if graph.open else ", all of them"
    print(f"{graph.bounds}: every state holds and leads on{rest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
