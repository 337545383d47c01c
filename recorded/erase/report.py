"""Sentences about an erasure: what was erased, what is left, and what must be done. Pure.

Topics under the cluster's other prefixes may also hold the sessions.
"""

import shlex
from collections.abc import Iterable, Iterator

from seamlessflow.recorded.erase.erased_files import FilesErased
from seamlessflow.recorded.erase.erasing import LogErased
from seamlessflow.schemas.topics import TRAJECTORIES

_MOST_NAMED = 10
_NOT_ERASED = (
    "not erased: weights and checkpoints (a trained model cannot forget a session: train again "
    "from one made before it), backups, logs of processes and agents, traces, metrics and reports "
    "sent elsewhere, and the same task's text in other sessions"
)


def report(log: LogErased, files: FilesErased, dry_run: bool) -> Iterator[str]:
    """Yield the report's lines."""
    verb = "would erase" if dry_run else "erased"
    yield from _of_topics(log, verb)
    for path, count in files.lines.items():
        yield f"{verb} {count:,} {'line' if count == 1 else 'lines'} of {path}"
    for path, count in files.nameless.items():
        yield f"! {path}: {count:,} lines name no session and stay: export it again from the copy"
    if files.tables:
        named = ", ".join(map(str, files.tables[:_MOST_NAMED]))
        more = len(files.tables) - _MOST_NAMED
        yield (
            f"! not searched: {named}{f' and {more} more' if more > 0 else ''}; "
            "export them again from the copy"
        )
    if stored := set().union(*(counts.stored for counts in log.topics.values())):
        yield f"{len(stored):,} records of these sessions are blobs; --delete-old deletes them"
    forks = sorted(set().union(*(counts.forks for counts in log.topics.values())))
    for fork in forks[:_MOST_NAMED]:
        yield f"! not erased: {fork} holds a copy of such a session: erase it too"
    if len(forks) > _MOST_NAMED:
        yield f"! not erased: {len(forks) - _MOST_NAMED} more that hold one"
    for made in sorted(set().union(*(counts.imported for counts in log.topics.values()))):
        yield f"! {made} was imported from such a session: erase it by this name too if it was used"
    for blob in sorted(set().union(*(counts.blobs for counts in log.topics.values()))):
        yield f"! not erased, delete it: {blob}"
    if files.first_version is not None:
        yield f"! weights from version {files.first_version} on were trained with erased tokens"
    yield _NOT_ERASED


def other_prefixes(topics: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the prefixes of all `trajectories` topics, without the known prefixes in `names`."""
    name = TRAJECTORIES.name
    prefixes = {topic.removesuffix(name) for topic in topics if topic.endswith(name)}
    return sorted(prefixes.difference(names))


def advice(sessions: Iterable[str], prefixes: Iterable[str]) -> Iterator[str]:
    """Yield a line for each prefix, with the command that erases from it."""
    named = shlex.join(sessions)
    for prefix in prefixes:
        yield f"! also look at: erase {named} --from {shlex.quote(prefix)} --to ..."


def _of_topics(log: LogErased, verb: str) -> Iterator[str]:
    if not any(counts.erased or counts.emptied for counts in log.topics.values()):
        yield "no record of the topics that were read is about these sessions"
    for topic, counts in log.topics.items():
        if counts.erased:
            listed = ", ".join(f"{count:,} {name}" for name, count in counts.by_record.items())
            yield f"{verb} {counts.erased:,} of {topic} ({listed}); kept {counts.copied:,}"
        if counts.emptied:
            yield f"{topic}: the text of {counts.emptied:,} failures of these sessions is left out"
        if counts.naming:
            yield f"{topic}: {counts.naming:,} records of others keep the sessions' ids"
        if counts.dropped:
            yield f"{topic}: {counts.dropped:,} records that cannot be decoded are left out"
        if counts.undecodable:
            yield (
                f"! {topic}: {counts.undecodable:,} records cannot be decoded, so it is not known "
                "whose they are; --drop-undecodable leaves them out"
            )
