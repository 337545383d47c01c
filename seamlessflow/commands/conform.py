"""The command `seamlessflow conform`: it compares two implementations of an environment."""

from typing import Annotated

import typer

_NAMES = "module:function that returns an environment; it may be in the working directory."


def conform(
    first: Annotated[str, typer.Argument(metavar="FIRST", help=_NAMES)],
    second: Annotated[
        str, typer.Argument(metavar="SECOND", help="The other environment, in the same form.")
    ],
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of episodes, each with its own seed.")
    ] = 100,
    first_seed: Annotated[int, typer.Option("--first", help="The first seed.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Most steps in an episode.")] = 1000,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest difference at which two numbers count as equal.")
    ] = 0.0,
    limit_s: Annotated[
        float, typer.Option(min=0.001, help="Most seconds that a call to an environment may take.")
    ] = 10.0,
) -> None:
    """Compare two implementations of an environment, step by step, by seeded actions.

    At the first difference it prints seed, step and action, and ends with status 1. It ends with
    status 78 if one of them cannot be compared. docs/conformance.md has the methods that an
    environment needs.
    """
    from seamlessflow.lab.conformance.comparing import EpisodeRules, compare_environments, lines
    from seamlessflow.lab.conformance.environment_process import EnvironmentProcess

    with EnvironmentProcess(first, limit_s) as left, EnvironmentProcess(second, limit_s) as right:
        numbers = range(first_seed, first_seed + seeds)
        result = compare_environments(left, right, numbers, EpisodeRules(steps, tolerance))
        for process in (left, right):
            if process.printed:
                typer.echo(f"{process.name} printed: {process.printed}", err=True)
    for line in lines(result, (first, second)):
        typer.echo(line)
    if result.difference is not None:
        raise typer.Exit(1)
