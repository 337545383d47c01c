"""An oracle of trajectories, computed from the engines' own record and the log.

It uses nothing of the manager (`consumers/trajectories`). Tokens are plain numbers, prefixes are
compared list by list, and a sampled token is identified by its log-prob, which no other token has.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.trainer.data.chains import chains
from tests.builders.trajectories.oracle import ExpectedTurn
from tests.properties.oracle.sessions import LoggedSession
from tests.properties.simulation.engine import Generation

Marked = list[tuple[int, float]]
"""Token ids, each with its log-probability; 0 where it was not sampled."""


class Record:
    """Every token that any engine sampled, by its log-probability."""

    def __init__(self, generations: Iterable[Generation]) -> None:
        self._found: dict[float, tuple[Generation, int]] = {
            sample.logprob: (generation, place)
            for generation in generations
            for place, sample in enumerate(generation.sampled)
        }

    def check(self, logprob: float, turn_id: str, version: int, before: list[int]) -> None:
        """Check that an engine sampled the last of these tokens for this turn, under this version,
        after the others."""
        assert logprob in self._found, f"I3: no engine sampled the token of {logprob}"
        generation, place = self._found[logprob]
        sample = generation.sampled[place]
        seen = [*generation.prompt, *generation.prefix]
        seen += [each.token for each in generation.sampled[: place + 1]]
        assert generation.request_id.rpartition("/")[0] == turn_id, "I3: of another turn"
        assert sample.version == version, f"I3: sampled by {sample.version}, recorded {version}"
        assert seen[-1] == before[-1], "I3: another token"
        assert seen == before, "I2: the engine saw another prefix"


@dataclass
class Drawn:
    """A trajectory taken apart."""

    made: Trajectory

    def __post_init__(self) -> None:
        ids = np.frombuffer(self.made.tokens, "<i4").tolist()
        logprobs = np.frombuffer(self.made.logprobs, "<f4").tolist()
        self.tokens: Marked = list(zip(ids, logprobs, strict=True))
        self.mask = list(self.made.loss_mask)
        self.versions: list[int | None] = [None] * len(ids)
        ends = [*(span.start for span in self.made.spans[1:]), len(ids)]
        for span, end in zip(self.made.spans, ends, strict=False):
            assert span.version_min == span.version_max
            self.versions[span.start : end] = [span.version_min] * (end - span.start)

    def node(self, number: int) -> Marked:
        """Return the tokens of a node."""
        node = self.made.nodes[number]
        return self.tokens[node.start : node.start + node.length]

    def path(self, number: int, end: int) -> Marked:
        """Return the tokens from the root through the first `end` of a node."""
        if number < 0:
            return []
        node = self.made.nodes[number]
        return self.path(node.parent, node.parent_end) + self.node(number)[:end]

    def prompt(self, node: TrajectoryNode) -> Marked:
        """Return the prompt of a sampled node."""
        return self.path(node.parent, node.parent_end)


def check(
    made: Trajectory,
    logged: LoggedSession,
    requests: Mapping[str, r.RequestTurn],
    record: Record,
    policy: r.PolicyWeights,
) -> None:
    """Check that a trajectory holds exactly the sampled and accepted tokens, and the right mask."""
    drawn = Drawn(made)
    sampled = [node for node in made.nodes if node.origin == "policy"]
    turns = logged.session.turns
    assert [node.turn_id for node in sampled] == [turn.started.turn_id for turn in turns], (
        "I5: a turn is missing, or there twice"
    )
    assert len(made.nodes) == 2 * len(turns), "I5: a turn is a prompt and what was sampled"
    reasons = _reasons(drawn, sampled, logged, requests, policy)
    for node, turn in zip(sampled, turns, strict=True):
        _check_node(drawn, node, turn, record)
        assert node.masked_reason == reasons[node.turn_id], (node, reasons[node.turn_id])
        trained = 0 if node.masked_reason else 1
        mask = drawn.mask[node.start : node.start + node.length]
        assert mask == [trained] * node.length, "I5: the mask is not what the reason says"
    for node in made.nodes:
        if node.origin != "policy":
            assert not any(drawn.mask[node.start : node.start + node.length])
    _check_counts(drawn, sampled, logged, reasons)
    _check_chains(made, record)
    _check_terms(made, logged)


def _check_node(drawn: Drawn, node: TrajectoryNode, turn: ExpectedTurn, record: Record) -> None:
    tokens, before = drawn.node(node.node_id), [token for token, _ in drawn.prompt(node)]
    versions = drawn.versions[node.start : node.start + node.length]
    accepted = [(sample.token, sample.logprob, sample.versions[0]) for sample in turn.sampled]
    recorded = [
        (token, logprob, version)
        for (token, logprob), version in zip(tokens, versions, strict=True)
    ]
    assert recorded == accepted, f"I5: {node.turn_id} is not what the log accepted"
    for token, logprob, version in recorded:
        before.append(token)
        assert version is not None
        record.check(logprob, node.turn_id, version, before)


def _reasons(
    drawn: Drawn,
    sampled: list[TrajectoryNode],
    logged: LoggedSession,
    requests: Mapping[str, r.RequestTurn],
    policy: r.PolicyWeights,
) -> dict[str, str]:
    """Return by turn id the reason why it is not trained, or ""."""
    unseen = _unseen(drawn, sampled, logged)
    abandoned = set() if policy.siblings == "all" else _abandoned(drawn, sampled, logged, unseen)
    reasons = {}
    for node, turn in zip(sampled, logged.session.turns, strict=True):
        exact = requests[node.turn_id].sampling.top_p in (None, 1.0)
        if turn.end != "completed":
            reasons[node.turn_id] = turn.end
        elif not exact and not policy.train_inexact:
            reasons[node.turn_id] = "inexact_top_p"
        elif node.turn_id in abandoned:
            reasons[node.turn_id] = "abandoned"
        elif node.turn_id in unseen and not policy.train_undelivered:
            reasons[node.turn_id] = "undelivered"
        else:
            reasons[node.turn_id] = "eval" if logged.session.opened.purpose == "eval" else ""
    return reasons


def _abandoned(
    drawn: Drawn, sampled: list[TrajectoryNode], logged: LoggedSession, unseen: set[str]
) -> set[str]:
    """Return the samples of a prompt that the agent abandoned for others, or for the last.

    One that no client saw is abandoned for any other.
    """
    siblings: dict[tuple[Any, ...], list[TrajectoryNode]] = {}
    for node, turn in zip(sampled, logged.session.turns, strict=True):
        if turn.end == "completed":
            siblings.setdefault((node.policy, *drawn.prompt(node)), []).append(node)
    gone_on = {node.parent for node in drawn.made.nodes if node.parent_end > 0}
    left: set[str] = set()
    for nodes in siblings.values():
        seen = [node for node in nodes if node.turn_id not in unseen] or nodes
        kept = [node for node in seen if node.node_id in gone_on] or seen[-1:]
        left |= {node.turn_id for node in nodes if node not in kept}
    return left


def _unseen(drawn: Drawn, sampled: list[TrajectoryNode], logged: LoggedSession) -> set[str]:
    """Return the turns whose client left without the answer; checks that they are so marked."""
    unseen: set[str] = set()
    for node, turn in zip(sampled, logged.session.turns, strict=True):
        # The stop token, the last of a turn that was not cut, may be another in a rendered history.
        least = max(node.length - (node.finish_reason != "length"), 1)
        kept = [child.parent_end for child in drawn.made.nodes if child.parent == node.node_id]
        lost = turn.left and max(kept, default=0) < least
        assert node.delivered == (turn.end == "completed" and not lost)
        unseen |= {node.turn_id} if lost else set()
    return unseen


def _check_counts(
    drawn: Drawn, sampled: list[TrajectoryNode], logged: LoggedSession, reasons: Mapping[str, str]
) -> None:
    made, masked = drawn.made, Counter[str]()
    for node in sampled:
        if reasons[node.turn_id] and node.length:
            masked[reasons[node.turn_id]] += node.length
    assert dict(made.masked_tokens) == dict(masked), "I5: a token is masked without being counted"
    assert sum(made.ignored_events.values()) == logged.ignored, "I5: an event is ignored uncounted"
    assert sum(made.match_rules.values()) == made.turns == len(sampled)
    trained = [
        version
        for node in sampled
        if not reasons[node.turn_id]
        for version in drawn.versions[node.start : node.start + node.length]
        if version is not None
    ]
    assert made.version_min == min(trained, default=None)
    assert made.version_max == max(trained, default=None)


def _check_chains(made: Trajectory, record: Record) -> None:
    """Check I6 on the trainer's chains."""
    seen: set[float] = set()
    for chain in chains(made, made.policy).chains:
        ids = chain.tokens.ids_T.tolist()
        for place in np.flatnonzero(chain.tokens.trained_T).tolist():
            logprob = float(chain.tokens.logprobs_T[place])
            assert logprob not in seen, f"I6: the token of {logprob} is trained twice"
            seen.add(logprob)
            turn_id = chain.turns[int(chain.tokens.turns_T[place])]
            version = int(chain.tokens.versions_T[place])
            record.check(logprob, turn_id, version, ids[: place + 1])
    assert len(seen) == sum(made.loss_mask), "I6: a trained token is in no chain"


def _check_terms(made: Trajectory, logged: LoggedSession) -> None:
    session = logged.session
    assert session.finalized is not None and session.closed is not None
    rewards = {
        (event.reward.name, event.reward.scope, event.reward.turn_id): event.reward
        for event in session.rewards
    }
    assert set(made.rewards) == set(rewards.values()), "I5: a reward is missing"
    judged = any(reward.scope == "session" for reward in rewards.values())
    status = session.closed.status
    assert made.status == ("unrewarded" if status == "complete" and not judged else status)
    assert (made.partition, made.first_offset, made.last_offset) == (
        logged.partition,
        session.offset,
        session.finalized[0],
    )
    assert made.finalized_at_ms == session.finalized[1].at_ms
