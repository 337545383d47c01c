"""Trail sessions that the policy plays in this process, as records of `trajectories`.

All sessions take a turn together. Prompts, bridges and parsing are the real renderer's, so the
tokens are those that the whole system would have.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

import numpy as np
import xxhash

from benchmarks.learning.sampler import Completion, Prompt, Sampler
from benchmarks.trail.game import Message, TrailTask, Walk, called_key, question
from seamlessflow.demo.task import LOOKUP
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import Reward, Trajectory, TrajectoryNode, VersionSpan
from seamlessflow.schemas.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Seat:
    """A session's place: its task, its group, and its number in the group."""

    task: TrailTask
    group: str
    sample: int
    group_size: int


@dataclass(slots=True)
class PlayedTurn:
    """A turn's tokens: what the prompt added, and what the policy sampled."""

    added: bytes
    completion: Completion


@dataclass(eq=False, slots=True)
class Played:
    """A session, while it is played and after that."""

    seat: Seat
    walk: Walk
    added: bytes
    """Tokens behind those in `turns`, which the next turn answers."""
    prompt: bytes
    turns: list[PlayedTurn] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The session's id."""
        return session_id(self.seat.group, self.seat.sample, 0)


class Player:
    """Sampler and renderer, and the seed that decides all sampled tokens."""

    def __init__(self, sampler: Sampler, renderer: Renderer, seed: int) -> None:
        self._sampler, self._renderer, self._seed = sampler, renderer, seed
        # Ten keys and a hundred answers: each is rendered and parsed once.
        self._begin = lru_cache(self._render)
        self._bridge = lru_cache(maxsize=4096)(self._bridged)
        self._said = lru_cache(maxsize=4096)(self._parsed)

    def play(self, seats: Sequence[Seat], temperature: float = 1.0) -> list[Played]:
        """Return each seat's session, played to its end."""
        sessions = [self._begun(seat) for seat in seats]
        while going := [session for session in sessions if not session.walk.over]:
            prompts = [self._asked(session) for session in going]
            completions = self._sampler.sample(prompts, temperature)
            for session, completion in zip(going, completions, strict=True):
                self._answered(session, completion)
        return sessions

    def answers(self, seats: Sequence[Seat]) -> dict[int, Completion]:
        """Return a completion that calls each key, from sessions that the policy plays."""
        completions: dict[int, Completion] = {}
        for session in self.play(seats):
            for turn in session.turns:
                said = json.loads(self._said(bytes(turn.completion.ids), b""))
                if (key := called_key(said)) is not None:
                    completions.setdefault(key, turn.completion)
        return completions

    def solve(self, seat: Seat, answers: Mapping[int, Completion]) -> Played:
        """Return a session in which every call is right."""
        session = self._begun(seat)
        while not session.walk.over:
            self._answered(session, answers[session.walk.right])
        return session

    def _begun(self, seat: Seat) -> Played:
        prompt = self._begin(json.dumps(question(seat.task)))
        return Played(seat, Walk(seat.task), prompt, prompt)

    def _asked(self, session: Played) -> Prompt:
        name = f"{session.name}.{len(session.turns)}"
        seed = xxhash.xxh3_64_intdigest(f"{self._seed} {name}".encode())
        return Prompt(name, session.prompt, seed)

    def _answered(self, session: Played, completion: Completion) -> None:
        ids = bytes(completion.ids)
        tail = self._renderer.tail(session.added)
        words = session.walk.take(json.loads(self._said(ids, tail)))
        session.turns.append(PlayedTurn(session.added, completion))
        if words is not None:
            session.added = self._bridge(tail, ids, words)
            session.prompt += ids + session.added

    def _render(self, message: str) -> bytes:
        return self._renderer.render([json.loads(message)], [LOOKUP])

    def _parsed(self, completion: bytes, tail: bytes) -> str:
        """Return a completion's assistant message as JSON text."""
        parsed = self._renderer.parse(completion, [LOOKUP], tail)
        calls = [
            {"function": {"name": call.name, "arguments": call.arguments}}
            for call in parsed.tool_calls
        ]
        message: Message = {"role": "assistant", "content": parsed.content, "tool_calls": calls}
        return json.dumps(message)

    def _bridged(self, tail: bytes, completion: bytes, words: str) -> bytes:
        message = {"role": "tool", "tool_call_id": "call_0", "content": words}
        bridge = self._renderer.bridge(tail, completion, [message], [LOOKUP])
        assert bridge is not None  # a valid call can always be continued
        return bridge


def recorded(
    played: Played, policy: str, version: int, tokenizer_hash: str, all_or_nothing: bool = False
) -> Trajectory:
    """Return the session as the trajectory manager would have recorded it.

    `all_or_nothing`: True if a whole trail has the reward 1 and any other 0.
    """
    seat = played.seat
    of_group = OfGroup(policy, seat.task["id"], seat.group, seat.sample, seat.group_size)
    rewards = _whole_reward(played.walk) if all_or_nothing else _rewards(played.walk)
    return trajectory(of_group, played.turns, rewards, version, tokenizer_hash)


@dataclass(frozen=True, slots=True)
class OfGroup:
    """A session's place among others."""

    policy: str
    task: str
    group: str
    sample: int
    group_size: int


def trajectory(
    of_group: OfGroup,
    turns: Sequence[PlayedTurn],
    rewards: tuple[Reward, ...],
    version: int,
    tokenizer_hash: str,
) -> Trajectory:
    """Return the record for a session with these turns, all sampled by one version."""
    runs = [run for turn in turns for run in _runs(turn)]
    starts = list(accumulate((len(ids) // TOKEN_BYTES for _, ids, _ in runs), initial=0))
    sampled = [origin == "policy" for origin, _, _ in runs]
    sizes = np.diff(starts)
    return Trajectory(
        session_id=session_id(of_group.group, of_group.sample, 0),
        policy=of_group.policy,
        task_id=of_group.task,
        group_id=of_group.group,
        sample=of_group.sample,
        group_size=of_group.group_size,
        min_group_size=of_group.group_size,
        tokens=b"".join(ids for _, ids, _ in runs),
        logprobs=b"".join(logprobs for _, _, logprobs in runs),
        loss_mask=np.repeat(np.array(sampled, np.uint8), sizes).tobytes(),
        spans=tuple(
            VersionSpan(start=start, version_min=version, version_max=version)
            for start, ours in zip(starts, sampled, strict=False)
            if ours
        ),
        nodes=tuple(
            _node(place, runs[place][0], starts[place], sizes.tolist())
            for place in range(len(runs))
        ),
        rewards=rewards,
        status="complete",
        reason="",
        cause="policy",
        creation_version=version,
        version_min=version,
        version_max=version,
        turns=len(turns),
        tokenizer_hash=tokenizer_hash,
        partition=0,
        first_offset=0,
        last_offset=len(runs),
        opened_at_ms=0,
        closed_at_ms=0,
        finalized_at_ms=0,
        fold_version=1,
    )


def _runs(turn: PlayedTurn) -> list[tuple[str, bytes, bytes]]:
    """Return origin, ids and log-probs for a turn's two runs."""
    ids, logprobs = bytes(turn.completion.ids), bytes(turn.completion.logprobs)
    return [("prompt", turn.added, bytes(len(turn.added))), ("policy", ids, logprobs)]


def _node(place: int, origin: str, start: int, sizes: Sequence[int]) -> TrajectoryNode:
    return TrajectoryNode(
        node_id=place,
        parent=place - 1,
        parent_end=sizes[place - 1] if place else 0,
        start=start,
        length=sizes[place],
        origin=origin,
        turn_id=f"turn-{place // 2}",
        log_offset=place,
    )


def _whole_reward(walk: Walk) -> tuple[Reward, ...]:
    return (Reward(value=float(walk.reward == 1)),)


def _rewards(walk: Walk) -> tuple[Reward, ...]:
    turns = (
        Reward(value=value, scope="turn", turn_id=f"turn-{place}")
        for place, value in enumerate(walk.rewards)
    )
    return (*turns, Reward(value=walk.reward))
