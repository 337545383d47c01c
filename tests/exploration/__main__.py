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
    for one in fields(Bounds):
        parser.add_argument(f"--{one.name}", type=type(one.default), default=one.default)
    parser.add_argument("--most-states", type=int, default=10**9, help="end after so many")
    parser.add_argument("--limit-s", type=float, default=10**9, help="end after so many seconds")
    given = vars(parser.parse_args())
    most_states, limit_s = given.pop("most_states"), given.pop("limit_s")
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
        graph = explore(Bounds(**given), most_states, limit_s, report)
    except Counterexample as found:
        print(found)
        return 1
    report(graph)
    rest = f"; {graph.open:,} of them not continued" if graph.open else ", all of them"
    print(f"{graph.bounds}: every state holds and leads on{rest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
