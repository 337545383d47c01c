"""Other prefixes of a cluster, whose topics may have copies of an erased session. Pure."""

import shlex
from collections.abc import Iterable, Iterator

from seamlessflow.schemas.topics import TRAJECTORIES


def other_prefixes(topics: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the prefixes of the topics `trajectories` that are not among the known ones."""
    name = TRAJECTORIES.name
    prefixes = {topic.removesuffix(name) for topic in topics if topic.endswith(name)}
    return sorted(prefixes.difference(names))


def advice(sessions: Iterable[str], prefixes: Iterable[str]) -> Iterator[str]:
    """Yield a line for each prefix, with the command that erases from it."""
    named = shlex.join(sessions)
    for prefix in prefixes:
        yield f"! also look at: erase {named} --from {shlex.quote(prefix)} --to ..."
