"""Trial of a control rule on recorded turns: tokens that it saves, and passes that it costs.

At worst, a pass is lost if any turn is stopped in a session that passed. `recorded_sessions` reads
a run's topics; all else is pure. `_NK`: a turn's tokens, and the likeliest ones beside each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError, SettingsRejected
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.user_functions import is_user_function, user_function
from seamlessflow.producers.rollout.control.contract import (
    SampledToken,
    TurnFacts,
    TurnRule,
    TurnStop,
    checked_step,
)
from seamlessflow.producers.rollout.control.rules import (
    BEFORE,
    GROUP,
    LEAST_CONFIDENCE,
    MOST_ENTROPY,
    RULES,
    SEEN,
    TAIL,
    confidence_and_entropy,
    rule_named,
)
from seamlessflow.recorded.export.exporting import recorded_weights
from seamlessflow.recorded.select.reading import Show, ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.tokens import unpack
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import session_return
from seamlessflow.trainer.data.figures.chances import PASSED

_LIKELIEST = "topk_logprobs"


@dataclass(frozen=True, slots=True)
class TriedTurn:
    """A completed turn."""

    facts: TurnFacts
    ids: Sequence[int]
    logprobs: Sequence[float]
    likeliest_NK: npt.NDArray[np.float32]
    """Recorded log-probs of the likeliest tokens; no column if none were recorded."""
    thought: int | None
    """Count of its first tokens that are thinking, or None if that is not known."""

    @property
    def top(self) -> int:
        """Count of likeliest tokens that were recorded beside each token."""
        return int(self.likeliest_NK.shape[1])

    def tokens(self, top: int) -> Iterator[SampledToken]:
        """Yield its tokens, each with so many likeliest ones."""
        likeliest = self.likeliest_NK[:, :top].tolist()
        rows = zip(self.ids, self.logprobs, likeliest, strict=True)
        for place, (token_id, logprob, others) in enumerate(rows):
            yield SampledToken(token_id, logprob, others, place < (self.thought or 0))


@dataclass(frozen=True, slots=True)
class TriedSession:
    """A training session: its turns in order, and whether it passed."""

    turns: Sequence[TriedTurn]
    passed: bool


def recorded_turns(session: Session) -> list[TriedTurn]:
    """Return the turns that were sampled to their end, in the order in which they began."""
    return [
        _turn(session, turn)
        for turn in session.sampled_turns
        if turn.state is TurnState.COMPLETED and session.tree.nodes[turn.node].ids
    ]


def _turn(session: Session, turn: Turn) -> TriedTurn:
    node = session.tree.nodes[turn.node]
    ids = unpack(bytes(node.ids))
    logprobs = np.frombuffer(bytes(node.logprobs), "<f4")
    likeliest = np.zeros((len(ids), 0), np.float32)
    tensor = turn.tensors.get(_LIKELIEST)
    if tensor is not None and tensor.data and tensor.to_token - tensor.from_token == len(ids):
        likeliest = np.frombuffer(tensor.data, "<f4").reshape(len(ids), -1)
    sampling = turn.started.sampling_effective
    facts = TurnFacts(
        prompt_length=turn.started.prompt_length,
        max_tokens=sampling.max_tokens,
        temperature=turn.started.logprob_temperature,
        tools=turn.started.tools is not None,
    )
    # The token that ends thinking is counted with it, and no rule sees it as thinking.
    counted = turn.reasoning_tokens
    thought = None if counted is None else max(0, counted - 1)
    return TriedTurn(facts, ids, logprobs.tolist(), likeliest, thought)


Settings = Mapping[str, Any]
_SHARES = (0.05, 0.1, 0.2, 0.4)
"""Shares of turns that the proposed thresholds for `confidence` would roughly stop."""


class LikeliestMissing(SeamlessFlowError):
    """A run whose turns lack the recorded likeliest tokens that a rule needs."""

    lasting = True

    def __init__(self, rule: str, needed: int, turns: int) -> None:
        self.rule = rule
        self.needed = needed
        self.turns = turns
        super().__init__(
            f"{rule} needs the {needed} likeliest tokens beside each token, and none of the "
            f"{turns:,} turns of this run has them: record some steps with "
            f"rollout.control.record_top: {needed}"
            if turns
            else f"this run has no turn of training yet, so there is nothing to try {rule} on"
        )


@dataclass(slots=True)
class Tried:
    """A rule's outcome with these settings."""

    settings: Settings
    turns: int = 0
    turns_stopped: int = 0
    tokens: int = 0
    tokens_saved: int = 0
    sessions: int = 0
    sessions_stopped: int = 0
    passes: int = 0
    passes_lost: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Stopped turns by reason."""

    def add(self, rule: TurnRule, session: TriedSession) -> None:
        """Count a session under the rule."""
        saved = 0
        stopped = 0
        over = False
        for turn in session.turns:
            length = len(turn.ids)
            self.turns += 1
            self.tokens += length
            if over:  # the session ended before it
                saved += length
                continue
            verdict = verdict_on(rule, turn)
            if verdict is not None:
                at, stop = verdict
                stopped += 1
                saved += length - at
                over = stop.ends == "session"
                self.reasons[stop.reason] = self.reasons.get(stop.reason, 0) + 1
        self.turns_stopped += stopped
        self.tokens_saved += saved
        self.sessions += 1
        self.sessions_stopped += bool(stopped)
        self.passes += session.passed
        self.passes_lost += session.passed and bool(stopped)


def tried(
    name: str, chosen: Sequence[Settings] | None, sessions: Sequence[TriedSession]
) -> list[Tried]:
    """Return an outcome for each of the settings; if there are none, for proposed ones.

    Turns without the log-probs that the rule needs are left out. Raises `LikeliestMissing`, and
    what `built` raises.
    """
    needed = SEEN if name == "confidence" else built(name, (chosen or [{}])[0]).top
    seen = [_seen(session, needed) for session in sessions]
    turns = [turn for session in seen for turn in session.turns]
    if not turns:
        raise LikeliestMissing(name, needed, sum(len(session.turns) for session in sessions))
    outcomes = []
    for settings in proposed(name, turns) if chosen is None else chosen:
        outcome = Tried(settings)
        rule = built(name, settings)
        for session in seen:
            outcome.add(rule, session)
        outcomes.append(outcome)
    return outcomes


def _seen(session: TriedSession, top: int) -> TriedSession:
    """Return the session with only the turns that have so many recorded likeliest tokens."""
    return replace(session, turns=[turn for turn in session.turns if turn.top >= top])


def verdict_on(rule: TurnRule, turn: TriedTurn) -> tuple[int, TurnStop] | None:
    """Return the length at which a rule ends a turn, and its verdict; None if it does not."""
    state: Any = rule.begin(turn.facts)
    for length, token in enumerate(turn.tokens(rule.top), 1):
        state, stop = checked_step(rule.step(state, token))
        if stop is not None:
            return length, stop
    return None


def built(name: str, settings: Settings) -> TurnRule:
    """Return a rule, which may be the user's own. Raises `SettingsRejected`."""
    if not is_user_function(name) and name not in RULES:
        reason = f"{name!r} is none of {', '.join(RULES)}, and not module:function"
        raise SettingsRejected("RULE", reason)
    try:
        if is_user_function(name):
            rule: TurnRule = user_function(name).call(**settings)
            return rule
        return rule_named(name, settings)
    except (TypeError, ValueError) as error:
        raise SettingsRejected("SETTING", str(error)) from error


def grid(options: Sequence[str]) -> list[dict[str, Any]]:
    """Return all combinations of settings like `floor=1.7,1.8`. Raises `SettingsRejected`."""
    values: dict[str, list[Any]] = {}
    for option in options:
        name, equals, listed = option.partition("=")
        if not equals or not name or not listed:
            raise SettingsRejected("SETTING", f"{option} is not NAME=VALUE[,VALUE ...]")
        values[name] = [_value(text) for text in listed.split(",")]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def proposed(name: str, turns: Iterable[TriedTurn]) -> list[dict[str, Any]]:
    """Return settings to try if none are given: for `confidence`, thresholds by what they stop."""
    if name != "confidence":
        return [{}]
    extremes = [_extremes(turn) for turn in turns]
    floors = [floor for floor, _, _ in extremes]
    tails = [tail for _, tail, _ in extremes]
    leaps = [-leap for _, _, leap in extremes]
    return [
        *_thresholds("floor", floors, LEAST_CONFIDENCE),
        *_thresholds("tail", tails, LEAST_CONFIDENCE),
        *(
            {"spike": -chosen["spike"]}
            for chosen in _thresholds("spike", leaps, -MOST_ENTROPY)
            if chosen["spike"] <= 0
        ),
    ]


def _thresholds(name: str, extremes: Sequence[float], above: float) -> Iterator[dict[str, Any]]:
    finite = [extreme for extreme in extremes if np.isfinite(extreme)]
    quantiles = np.quantile(finite, _SHARES).tolist() if finite else []
    for threshold in dict.fromkeys(round(quantile, 3) for quantile in quantiles):
        if threshold > above:
            yield {name: threshold}


def _extremes(turn: TriedTurn) -> tuple[float, float, float]:
    """Return the lowest mean confidence over 4 and over 8 tokens, and the highest entropy leap."""
    pairs = [confidence_and_entropy(token.top) for token in turn.tokens(SEEN)]
    confidences = [confidence for confidence, _ in pairs]
    entropies = [entropy for _, entropy in pairs]
    leaps = (
        entropies[place] - fmean(entropies[place - BEFORE : place])
        for place in range(BEFORE, len(entropies))
    )
    return _lowest(confidences, GROUP), _lowest(confidences, TAIL), max(leaps, default=-np.inf)


def _lowest(values: Sequence[float], width: int) -> float:
    means = (fmean(values[end - width : end]) for end in range(width, len(values) + 1))
    return min(means, default=np.inf)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def recorded_sessions(
    kafka: KafkaSettings, skipped: Skipped, show: Show, stopping: Stopping = never
) -> Iterator[TriedSession]:
    """Yield the ended training sessions. Raises what `ended_sessions` raises."""
    everything = SessionSelection()
    weights = recorded_weights(kafka, skipped, stopping)
    bounds = partition_bounds(kafka, everything, stopping)
    total = sum(end - start for start, end in bounds.values())
    largest = largest_trajectory(kafka)
    for number, part in bounds.items():
        fold = Refold(LoggedPartition(number), everything)

        def count(events: int) -> None:
            show(events, total)

        for session in ended_sessions(kafka, fold, part, skipped, count, stopping):
            if session.opened.purpose == "train":
                made, _ = assembled(session, number, largest)
                returned = session_return(made, weights.get(made.policy, ONE_REWARD))
                passed = returned is not None and returned >= PASSED
                yield TriedSession(recorded_turns(session), passed)
