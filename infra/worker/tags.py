"""Workers' tags, and turns' wishes for them. Pure.

A tag is a word (`decode`), or a kind and a name (`hw:H20`). `rollout` and `train` are roles that a
worker can take; all others describe it. A wish is a tag that a turn prefers (`decode`), or that it
requires (`decode!`). Used by settings, the gateway and the trajectory manager.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Protocol, TypeVar

from pydantic import AfterValidator

ROLES = ("rollout", "train")
SHARED = "shared"
"""Tag for a rollout worker that the scheduler gives to a run's policies in turns."""
CHEAP = "cheap"
"""Tag for a rollout worker that explores (`pacing.sampler.name: explore`)."""
EXACT = "exact"
"""Tag for a rollout worker that samples again the part of an exploration that is trained."""
KNOWN = (*ROLES, "prefill", "decode", "reward", "env", SHARED)
KINDS = ("precision", "hw")
WISHES = "worker_tags"
"""Entry in a session's metadata with the wishes of all its turns."""

MOST_WISHES = 16
_FORM = re.compile(r"([a-z][a-z0-9_-]{0,62})(:[A-Za-z0-9][A-Za-z0-9._-]{0,62})?")
_NEAR = 0.75


@dataclass(frozen=True, slots=True)
class Wishes:
    """Tags that a turn prefers and requires."""

    prefers: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.prefers or self.requires)

    def __str__(self) -> str:
        return ", ".join([*sorted(self.prefers), *(f"{tag}!" for tag in sorted(self.requires))])


NO_WISHES = Wishes()


class Tagged(Protocol):
    """A worker that may get turns."""

    @property
    def tags(self) -> frozenset[str]:
        """Its tags."""

    @property
    def free(self) -> bool:
        """True if it has a place for a further turn."""


W = TypeVar("W", bound=Tagged)


def check_tag(tag: str) -> str:
    """Return a tag. Raises `ValueError` if it has another form, or nearly spells a known tag."""
    matched = _FORM.fullmatch(tag)
    if matched is None:
        raise ValueError(f"{tag!r} is no tag: write a word as decode, or kind:name as hw:H20")
    word = matched[1]
    words = KINDS if matched[2] else KNOWN
    near = get_close_matches(word, words, 1, _NEAR)
    if near and word not in words:
        raise ValueError(f"{tag!r} is not a known tag: is {near[0] + (matched[2] or '')!r} meant?")
    if (not matched[2] and word in KINDS) or (matched[2] and word in KNOWN):
        form = f"{word}:NAME" if word in KINDS else word
        raise ValueError(f"{tag!r} is no tag: write {form}")
    return tag


def check_worker(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return a worker's tags. Raises `ValueError` for a wrong one, or if it has no role."""
    for tag in tags:
        check_tag(tag)
    if not any(role in tags for role in ROLES):
        raise ValueError("names no role: a worker needs rollout, train, or both")
    return tags


WorkerTags = Annotated[tuple[str, ...], AfterValidator(check_worker)]
"""A worker's tags in settings."""


def read_wishes(text: str) -> tuple[str, ...]:
    """Return the wishes in a list with commas. Raises `ValueError` for a wrong one."""
    wishes = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if len(wishes) > MOST_WISHES:
        raise ValueError(f"names more than {MOST_WISHES} tags")
    for wish in wishes:
        check_tag(wish.removesuffix("!"))
    return wishes


def wishes_of(wishes: Iterable[str]) -> Wishes:
    """Return what turns with these wishes prefer and require."""
    both: tuple[set[str], set[str]] = (set(), set())
    for wish in wishes:
        both[wish.endswith("!")].add(wish.removesuffix("!"))
    prefers, requires = both
    return Wishes(frozenset(prefers - requires), frozenset(requires))


def wished(workers: Sequence[W], wishes: Wishes) -> Sequence[W]:
    """Return the workers among which one is chosen.

    They have all required tags. If tags are preferred, they are the workers with a free place that
    have the most preferred tags. If no worker has a place, all with the required tags are
    returned.
    """
    able = [worker for worker in workers if worker.tags >= wishes.requires]
    if not wishes.prefers:
        return able
    free = [worker for worker in able if worker.free]
    most = max((len(worker.tags & wishes.prefers) for worker in free), default=0)
    return [worker for worker in free if len(worker.tags & wishes.prefers) == most] or able
