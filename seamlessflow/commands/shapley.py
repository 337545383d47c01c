"""The command `seamlessflow shapley`: what each module of an agent adds to its score."""

from pathlib import Path
from typing import Annotated

import typer


def shapley(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Scores for each combination of tested modules: CSV, JSON lines or exported "
            "sessions.",
            exists=True,
            dir_okay=False,
        ),
    ],
) -> None:
    """Print each module's Shapley value, from scores for all combinations of modules.

    docs/trainer/evaluations.md says how the combinations are run. The values sum to the score with
    all tested modules minus the score with none. Combinations without a score are named.
    """
    from seamlessflow.reports.shapley import Combination, lines, read_scores, shapley_values

    scores: dict[Combination, list[float]] = {}
    unscored = 0
    for file in files:
        read, without = read_scores(str(file), file.read_text(encoding="utf-8"))
        unscored += without
        for combination, of_combination in read.items():
            scores.setdefault(combination, []).extend(of_combination)
    for line in lines(shapley_values(scores)):
        typer.echo(line)
    if unscored:
        typer.echo(f"{unscored} sessions without a reward are left out")
