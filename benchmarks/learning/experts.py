"""Recorded successes for a share of the tasks, which `trainer.replay` takes from a pool.

No policy sampled them: each call is right, in the form in which the policy writes calls. So they
have no log-probs, as an import of an expert's text has none. Called by `loop.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.learning.methods import GROUP_SIZE, POLICY
from benchmarks.learning.sessions import Player, Seat, recorded
from benchmarks.trail.game import TrailTask
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import FOREIGN
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.mixing.mixed_steps import Mixing, mixing_of
from seamlessflow.trainer.mixing.pools import StoredSession
from seamlessflow.trainer.mixing.stored import StoredRules, stored_group, stored_session
from seamlessflow.trainer.settings import TrainerSettings

EVERY = 10
"""One in so many tasks has a recorded success."""
POOL = "experts"


class Recording:
    """The successes, at offsets in a list as they would be on a topic."""

    def __init__(self, successes: Sequence[Trajectory], rules: StoredRules) -> None:
        self.successes = successes
        self.rules = rules

    def update(self) -> None:
        """Nothing is added."""

    def sessions(self, wanted: Sequence[tuple[str, StoredSession]]) -> dict[str, ValidSession]:
        """Return these sessions by id."""
        read = {}
        for pool, session in wanted:
            record = self.successes[session.offset]
            made = stored_session(pool, record, self.rules, 0, session.offset)
            assert isinstance(made, ValidSession)
            read[session.session_id] = made
        return read


def expert_mixing(
    settings: TrainerSettings, player: Player, tasks: Sequence[TrailTask], tokenizer_hash: str
) -> Mixing:
    """Return these settings' mixer, over recorded successes for every tenth task."""
    answers = player.answers([Seat(task, f"ask-{task['id']}", 0, 1) for task in tasks[:64]])
    successes = [
        _expert(recorded(player.solve(_seat(task), answers), POLICY, 0, tokenizer_hash, True))
        for task in tasks[::EVERY]
    ]
    rules = StoredRules(POLICY, settings.trainer.reward_weights, tokenizer_hash)
    mixing = mixing_of(settings.trainer)
    for offset, success in enumerate(successes):
        mixing.pools[POOL].put(stored_group(POOL, success, rules, 0, offset))
    mixing.stored = Recording(successes, rules)
    return mixing


def _seat(task: TrailTask) -> Seat:
    return Seat(task, f"expert-{task['id']}", 0, GROUP_SIZE)


def _expert(session: Trajectory) -> Trajectory:
    """Return the session as an import without log-probs would be."""
    nodes = tuple(
        replace(node, origin=FOREIGN) if node.origin == "policy" else node for node in session.nodes
    )
    return replace(session, nodes=nodes, metadata={"logprobs": "none"})
