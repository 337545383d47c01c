"""Rewards of the demo's task by the age of what is trained (open question 1 of the paper).

    python -m benchmarks lag [--out DIR] [--steps 80] [--seeds 3] [--quick]

Each run has batches of an imposed age of 0, 1, 2 or 4 optimizer steps (`load/aged.py`), the loss
`ppo_clip` or `tis`, and a seed. The age that is plotted is measured: the mean staleness of the
trained tokens, by the versions that sampled them. A run that has ended has its `result.json` in DIR
and is not made again. In DIR: `lag.svg`, `lag.json` with a reading in two sentences. Progress goes
to standard error. `--quick` is a smoke run: one seed, ages 0 and 1, six steps.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.scheduling.ages import AgedResult, result, runs
from benchmarks.scheduling.reward_curves import draw, reading

_AGES, _LOSSES = (0, 1, 2, 4), ("ppo_clip", "tis")
_QUICK_AGES, _QUICK_STEPS = (0, 1), 6


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks lag", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".seamlessflow/lag"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(argv)
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    ages = _QUICK_AGES if asked.quick else _AGES
    steps, seeds = (_QUICK_STEPS, 1) if asked.quick else (asked.steps, asked.seeds)
    wanted = list(runs(ages, _LOSSES, seeds, steps))
    found: list[AgedResult] = []
    for number, run in enumerate(wanted, start=1):
        print(f"run {number} of {len(wanted)}: {run.name}", file=sys.stderr, flush=True)
        found.append(result(run, out))
        print(
            f"measured age {found[-1].measured_age:.2f}, last reward {found[-1].rewards[-1]:.2f}, "
            f"{found[-1].took_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    draw(found, out / "lag.svg")
    told = {"reading": reading(found), "took_s": round(sum(of.took_s for of in found), 1)}
    results = json.dumps({**told, "runs": [asdict(of) for of in found]})
    (out / "lag.json").write_text(f"{results}\n", encoding="utf-8")
    print(json.dumps({"benchmark": "lag", "out": str(out), "runs": len(found), **told}))


if __name__ == "__main__":
    main(sys.argv[1:])
