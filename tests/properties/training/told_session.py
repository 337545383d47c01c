"""A session as an estimator of advantages is told of it: its trained tokens, turns and returns.

Found by walking over the nodes as they were made, not by the trainer's chains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.settings import TrainerSection
from tests.properties.training.random_sessions import MadeSession, TokenName

Of = dict[tuple[str, TokenName], float]
"""A number for each trained token of each session."""


@dataclass(frozen=True)
class Told:
    """A session as estimators are told of it."""

    made: MadeSession
    settings: TrainerSection

    @cached_property
    def previous(self) -> dict[TokenName, TokenName | None]:
        """The trained token before each trained one on its branch."""
        runs, previous = self.made.runs, dict[TokenName, TokenName | None]()
        for number, run in enumerate(runs):
            for place in range(len(run.ids)):
                if not (run.sampled and run.trained):
                    continue
                node, before = number, place - 1
                while node >= 0 and (before < 0 or not (runs[node].sampled and runs[node].trained)):
                    node, before = runs[node].parent, runs[node].parent_end - 1
                name = self.made.places[number][place]
                previous[name] = self.made.places[node][before] if node >= 0 else None
        return previous

    @cached_property
    def r(self) -> float:
        """The session's last reward, or 0; less the punishment for its length."""
        reward, length = self.last_reward("reward"), self.settings.overlong.length
        cache, weight = self.settings.overlong.cache, self.settings.overlong.weight
        if length is None or cache is None:
            return reward
        sampled = sum(len(run.ids) for run in self.made.runs if run.sampled)
        if sampled <= length - cache:
            return reward
        return reward - (
            weight if sampled >= length else weight * (sampled - length + cache) / cache
        )

    def last_reward(self, name: str) -> float:
        """Return the session's last reward of a name, or 0."""
        rewards = [
            reward
            for reward in self.made.rewards
            if reward.scope == "session" and reward.name == name
        ]
        return rewards[-1].value if rewards else 0.0

    @property
    def left_out(self) -> bool:
        return self.made.limit in self.settings.overlong.masked

    def turn_reward(self, turn: str) -> float:
        values = [
            reward.value
            for reward in self.made.rewards
            if reward.name == "reward" and reward.scope == "turn" and reward.turn_id == turn
        ]
        return (values or [0.0])[-1]

    def after(self, token: TokenName) -> list[TokenName]:
        return [later for later, before in self.previous.items() if before == token]

    @cached_property
    def first(self) -> dict[str, TokenName]:
        """The first trained token of each turn."""
        turns = {turn for turn, _ in self.previous}
        return {turn: min(token for token in self.previous if token[0] == turn) for turn in turns}

    def turn_before(self, turn: str) -> str | None:
        before = self.previous[self.first[turn]]
        return None if before is None else before[0]

    def turns_after(self, turn: str) -> list[str]:
        return [later for later in self.first if self.turn_before(later) == turn]

    def depth(self, turn: str) -> int:
        before = self.turn_before(turn)
        return 0 if before is None else 1 + self.depth(before)

    def column(self, kind: Column | str, token: TokenName) -> float:
        return self.made.value(kind, token)

    def all_tokens(self, value: Callable[[TokenName], float]) -> Of:
        return {(self.made.name, token): value(token) for token in self.previous}
