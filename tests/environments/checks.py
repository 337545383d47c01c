"""Checks of each package's episodes, and a row for the table of what was run."""

from dataclasses import dataclass

from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.venvs import versions
from tests.environments.playing import Package, Played

SCRIPTS = "scripts"
TINY = "tiny model, torch"


@dataclass(frozen=True)
class Row:
    """Episodes of a package."""

    package: str
    what: str
    policy: str
    turns: str
    chains: str
    seconds: str


HEAD = Row("package", "what was run", "policy", "turns", "chains a session", "seconds an episode")


def one_chain(*episodes: Played) -> None:
    """Check that the package's client got the ids on the log, in a session of one chain each."""
    for episode in episodes:
        assert episode.sampled
        assert episode.received == episode.sampled
        assert episode.chains == 1, episode.trajectory.match_rules


def row(package: Package, what: str, policy: str, *episodes: Played) -> Row:
    """Return the row of these episodes."""
    versioned = " ".join(f"{name} {at}" for name, at in versions(KNOWN[package.name]).items())
    return Row(
        versioned,
        what,
        policy,
        _range([len(episode.sampled) for episode in episodes]),
        _range([episode.chains for episode in episodes]),
        f"{sum(episode.seconds for episode in episodes) / len(episodes):.2f}",
    )


def _range(counts: list[int]) -> str:
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least}-{most}"
