"""Random groups of sessions: trees of turns that fork anywhere; rewards may be missing."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hypothesis import strategies as st

from seamlessflow.schemas.records import Reward, Trajectory
from seamlessflow.trainer.data.chains import Column
from tests.builders.trainer.trajectories import Run, trajectory

TokenName = tuple[str, int]
"""Turn of a sampled token, and its place in the turn's completion."""


@dataclass(frozen=True)
class MadeSession:
    """A session as it was made; numbers are multiples of 1/8, which every type holds exactly."""

    name: str
    runs: tuple[Run, ...]
    rewards: tuple[Reward, ...]
    limit: str = ""
    said: dict[Column | str, dict[TokenName, float]] = field(default_factory=dict)
    """Columns by token, and `logprob`; those that are not given are made up from its name."""

    @cached_property
    def trajectory(self) -> Trajectory:
        """Its record; it is complete if it has a reward, and truncated if it has none."""
        judged = any(
            reward.scope == "session" and reward.name == "reward" for reward in self.rewards
        )
        runs = [self._told(number) for number in range(len(self.runs))]
        made = trajectory(runs, self.name, status="complete" if judged else "truncated")
        return replace(made, rewards=self.rewards, limit=self.limit)

    @cached_property
    def places(self) -> list[list[TokenName]]:
        """The names of the sampled tokens of each node, none for other nodes."""
        places, counts = [], dict[str, int]()
        for run in self.runs:
            count = counts.get(run.turn, 0)
            names = [(run.turn, count + place) for place in range(len(run.ids))]
            places.append(names if run.sampled else [])
            counts[run.turn] = count + len(places[-1])
        return places

    def value(self, kind: Column | str, token: TokenName) -> float:
        """Return a number of a token: a column, or its `logprob` by the engine."""
        if kind in self.said:
            return self.said[kind][token]
        drawn = zlib.crc32(f"{kind} {self.name} {token} {len(self.runs)}".encode())
        if kind is Column.TOP_SHARE:
            return drawn % 9 / 8
        return drawn % 25 / 8 if kind is Column.ENTROPY else -(drawn % 33) / 8

    def _told(self, number: int) -> Run:
        run, names = self.runs[number], self.places[number]
        return replace(
            run,
            logprobs=[self.value("logprob", token) for token in names] or [0.0] * len(run.ids),
            versions=[0] * len(run.ids),
        )


@st.composite
def sessions(draw: st.DrawFn, name: str) -> MadeSession:
    """Draw a session of up to seven nodes behind a prompt."""
    runs = [Run([1, 2], "prompt", "p")]
    for number in range(draw(st.integers(0, 7))):
        runs.append(_node(draw, runs, number))
    turns = sorted({run.turn for run in runs if run.sampled})
    rewards = [
        Reward(value=draw(numbers), scope="turn", turn_id=turn)
        for turn in turns
        for _ in range(draw(st.integers(0, 2)))
    ]
    rewards += [Reward(value=draw(numbers)) for _ in range(draw(st.integers(0, 2)))]
    rewards += [Reward(value=draw(numbers), name="style", turn_id=turn) for turn in turns[:1]]
    return MadeSession(
        name, tuple(runs), tuple(rewards), draw(st.sampled_from(["", "", "context"]))
    )


numbers = st.integers(-8, 8).map(lambda number: number / 8)


def _node(draw: st.DrawFn, runs: Sequence[Run], number: int) -> Run:
    """Draw a node anywhere in the tree: a turn, the rest of one, a tool's result, a new prompt."""
    ids = range(draw(st.integers(1, 3)))
    kind = draw(st.sampled_from(["turn", "turn", "turn", "rest", "tool", "prompt"]))
    if kind == "prompt":
        return Run(ids, "prompt", f"p{number}")
    parent = draw(st.integers(0, len(runs) - 1))
    end = draw(st.integers(1, len(runs[parent].ids)))
    trained = draw(st.integers(0, 4)) > 0
    if kind == "tool":
        return Run(ids, "tool", f"x{number}", parent, end)
    before = runs[parent]
    goes_on = any(run.turn == before.turn for run in runs[parent + 1 :])
    if kind == "rest" and before.sampled and not goes_on:
        return Run(ids, "policy", before.turn, parent, len(before.ids), trained)
    return Run(ids, "policy", f"t{number}", parent, end, trained)


@st.composite
def batches(draw: st.DrawFn) -> list[list[MadeSession]]:
    """Draw the sessions of each group of a batch."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    return [
        [draw(sessions(f"g{group}.{place}.0")) for place in range(size)]
        for group, size in enumerate(sizes)
    ]
