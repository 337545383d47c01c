"""A session merged again by other rules, beside the recorded merge: `replay merge --diff`. Pure.

It folds and rewrites as `seamlessflow replay merge` does, and writes nothing.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, TypeVar

from seamlessflow.console.views.compare.moments import CountChange, counts_changed
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.console.views.session.columns import ANY_SIZE
from seamlessflow.consumers.trajectories.sessions.assemble import assembled, standing
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.merge.difference import Difference
from seamlessflow.recorded.merge.rewriting import rewriting
from seamlessflow.recorded.merge.rules import (
    ALL,
    RECORDED,
    MergeRules,
    SiblingsRule,
    ThreadsRule,
)
from seamlessflow.recorded.select.options import weights
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.schemas.records import Reward, Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import POLICY

MOST_TURNS = 300
LATE = "late_rewards"
RULE_PARTS = (
    *("fold_version", "train_inexact", "train_undelivered", "siblings", "purpose", "threads"),
    *("return", LATE),
)
"""Parts of a query that are rules."""
_SWITCH: Mapping[str, bool] = {"1": True, "0": False}
_SIBLINGS: Mapping[str, SiblingsRule] = {"continued": "continued", "all": "all"}
_PURPOSES: Mapping[str, Literal["train", "eval"]] = {"train": "train", "eval": "eval"}
_THREADS: Mapping[str, ThreadsRule] = {"recorded": "recorded", "tokens": "tokens"}
_LATE_OPTION = "--late-rewards"
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RulesQuery:
    """Other rules for a session."""

    session_id: str
    rules: MergeRules
    with_late: bool
    """True: include the rewards on the log whose judges were late."""
    parts: Mapping[str, str]
    """The same as parts of an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEffect:
    """The changes that a rule makes by itself, or all rules together."""

    rule: str
    """Option of the command, or a text for all of them together."""
    trained_more: int
    trained_less: int
    masked: Mapping[str, int]
    """Change in how many tokens are masked, by reason."""
    turns_moved: int
    prompt_tokens: int
    rewards: int
    statuses: Sequence[str]
    none: bool
    """True if it changes nothing."""


@dataclass(frozen=True, slots=True)
class RewardBeside:
    """A reward under both rules; None where a rule gives none."""

    name: str
    turn: str
    """Turn that it is about; empty for the whole session."""
    recorded: float | None
    other: float | None


@dataclass(frozen=True, slots=True)
class TurnFate:
    """A turn's place in the tree, and how much of its answer may be trained."""

    behind: str
    """Place that its prompt continues."""
    trained: int
    masked: str
    """Reason why tokens are not trained; empty if all are."""


@dataclass(frozen=True, slots=True)
class TurnBeside:
    """A turn under the recorded and the other rules."""

    turn: str
    tokens: int
    recorded: TurnFate
    other: TurnFate
    changed: bool
    """True if the rules differ about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesCompared:
    """A session under the recorded rules and under others."""

    session: str
    policy: str
    open: bool
    """True if it has not ended: it stands as its events leave it, without rules about rewards."""
    fold_version: int
    """Version of the fold's rules under which it was recorded."""
    newest_fold: int
    names: Sequence[str]
    """Names of its rewards, which a return may weigh."""
    late: int | None
    """Count of rewards from late judges; None if they are not asked for."""
    rules: Mapping[str, str]
    """Other rules, as parts of an address."""
    command: str
    """Command that shows the same in a terminal; empty if no rule differs."""
    effects: Sequence[RuleEffect]
    statuses: tuple[str, str]
    """Statuses under the recorded rules and under the others."""
    purposes: tuple[str, str]
    tokens: Sequence[CountChange]
    masked: Sequence[CountChange]
    """Sampled tokens that are not trained, by reason."""
    rewards: Sequence[RewardBeside]
    changed: int
    """Turns about which the rules differ."""
    turns: Sequence[TurnBeside]
    """Changed turns first, then the others, each in log order."""
    left_out: int


def rules_query(query: Query) -> RulesQuery:
    """Return the rules that a query asks for. Raises `QueryRejected`."""
    rules = MergeRules(
        fold_version=query.number("fold_version", 1, FOLD_VERSION),
        train_inexact=_choice(query, "train_inexact", _SWITCH),
        train_undelivered=_choice(query, "train_undelivered", _SWITCH),
        siblings=_choice(query, "siblings", _SIBLINGS),
        purpose=_choice(query, "purpose", _PURPOSES),
        threads=_choice(query, "threads", _THREADS) or "recorded",
        return_of=_return(query),
    )
    parts = {name: query.text(name) for name in RULE_PARTS}
    return RulesQuery(
        session_id=query.text("session"),
        rules=rules,
        with_late=_choice(query, LATE, _SWITCH) or False,
        parts={name: text for name, text in parts.items() if text},
    )


def rules_compared(
    events: Sequence[Received], query: RulesQuery, late: Sequence[Reward], option: str
) -> RulesCompared | None:
    """Return a session under both rules, or None if none of the events opened it.

    `events`: its own and its partition's claims, in log order. `late`: late rewards, if they are
    asked for. `option`: option by which a command finds the run. Raises `NewerRelease`.
    """
    session_id = query.session_id
    rules = replace(query.rules, late={session_id: tuple(late)}) if late else query.rules
    recorded = _merged(events, session_id, RECORDED)
    other = _merged(events, session_id, rules)
    if recorded is None or other is None:
        return None
    (before, ended) = recorded
    (after, _) = other
    turns = list(_turns(before, after))
    changed = [turn for turn in turns if turn.changed]
    in_order = [*changed, *(turn for turn in turns if not turn.changed)]
    return RulesCompared(
        session=session_id,
        policy=before.policy,
        open=not ended,
        fold_version=before.fold_version,
        newest_fold=FOLD_VERSION,
        names=sorted({reward.name for reward in (*before.rewards, *late)}),
        late=len(late) if query.with_late else None,
        rules=query.parts,
        command=_command(query, option),
        effects=list(_effects(events, session_id, before, after, rules)),
        statuses=(before.status, after.status),
        purposes=(before.purpose, after.purpose),
        tokens=counts_changed(_tokens(before), _tokens(after)),
        masked=counts_changed(before.masked_tokens, after.masked_tokens),
        rewards=list(_rewards(before, after)),
        changed=len(changed),
        turns=in_order[:MOST_TURNS],
        left_out=max(0, len(turns) - MOST_TURNS),
    )


def _choice(query: Query, name: str, values: Mapping[str, _Value]) -> _Value | None:
    return values.get(query.choice(name, tuple(values)))


def _return(query: Query) -> dict[str, float]:
    """Return the weights that a text such as `correct=1, format=0.2` gives."""
    text = query.text("return")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        made = weights(parts)
    except SettingsRejected as error:
        raise QueryRejected(
            "return", text, f"{error.reason}, such as correct=1,format=0.2"
        ) from error
    if not all(isfinite(weight) for weight in made.values()):
        raise QueryRejected("return", text, "a weight must be a finite number")
    return made


def _merged(
    events: Sequence[Received], session_id: str, rules: MergeRules
) -> tuple[Trajectory, bool] | None:
    """Return the session merged by rules, and whether it has ended; None if it never opened."""
    if not events:
        return None
    number = events[0].partition
    fold = Refold(LoggedPartition(number), rewrite=rewriting(rules))
    for item in events:
        ended = fold.apply(item.record, item.offset)
        if ended is not None and ended.session_id == session_id:
            return assembled(ended, number, ANY_SIZE)[0], True
    session = fold.log.sessions.get(session_id)
    if session is None:
        return None
    return standing(session, number, session.opened.epoch, 0, ANY_SIZE), False


def _effects(
    events: Sequence[Received],
    session_id: str,
    before: Trajectory,
    after: Trajectory,
    rules: MergeRules,
) -> Iterator[RuleEffect]:
    """Yield each rule's effect, and with several rules also the effect of all together."""
    each = list(rules.each())
    for _, rule in each:
        alone = _merged(events, session_id, rule) if len(each) > 1 else (after, True)
        if alone is not None:
            yield _effect(" ".join(_options(rule)), before, alone[0])
    if len(each) > 1:
        yield _effect(ALL, before, after)


def _effect(label: str, before: Trajectory, after: Trajectory) -> RuleEffect:
    difference = Difference()
    difference.apply(before, after)
    return RuleEffect(
        rule=label,
        trained_more=difference.trained_more,
        trained_less=difference.trained_less,
        masked={reason: count for reason, count in difference.masked.items() if count},
        turns_moved=difference.turns_moved,
        prompt_tokens=difference.prompt_tokens,
        rewards=difference.rewards,
        statuses=list(difference.statuses),
        none=not difference.sessions,
    )


def _tokens(made: Trajectory) -> Mapping[str, int]:
    trained = sum(made.loss_mask)
    return {
        "tokens of the tree": len(made.loss_mask),
        "of them sampled": sum(node.length for node in made.nodes if node.origin == POLICY),
        "of them trained": trained,
    }


def _rewards(before: Trajectory, after: Trajectory) -> Iterator[RewardBeside]:
    old = _values(before)
    new = _values(after)
    for name, turn in dict.fromkeys((*old, *new)):
        yield RewardBeside(name, turn, old.get((name, turn)), new.get((name, turn)))


def _values(made: Trajectory) -> Mapping[tuple[str, str], float]:
    return {(reward.name, reward.turn_id or ""): reward.value for reward in made.rewards}


def _turns(before: Trajectory, after: Trajectory) -> Iterator[TurnBeside]:
    """Yield the turns that sampled tokens under both rules, in log order."""
    old = dict(_fates(before))
    new = dict(_fates(after))
    for turn, (tokens, fate) in old.items():
        if turn in new:
            (_, other) = new[turn]
            yield TurnBeside(turn, tokens, fate, other, fate != other)


def _fates(made: Trajectory) -> Iterator[tuple[str, tuple[int, TurnFate]]]:
    prompts = {node.turn_id: node for node in made.nodes if node.origin != POLICY}
    for node in made.nodes:
        if node.origin != POLICY:
            continue
        trained = made.loss_mask[node.start : node.start + node.length].count(1)
        partly = "inexact_version" if trained < node.length else ""
        behind = _behind(made, prompts.get(node.turn_id, node))
        yield node.turn_id, (node.length, TurnFate(behind, trained, node.masked_reason or partly))


def _behind(made: Trajectory, prompt: TrajectoryNode) -> str:
    """Return the place behind which a prompt stands, in words."""
    if prompt.parent < 0:
        return "nothing"
    parent = made.nodes[prompt.parent]
    part = "answer" if parent.origin == POLICY else "prompt"
    whole = "" if prompt.parent_end == parent.length else f"{prompt.parent_end} tokens of the "
    return f"{whole}{part} of {parent.turn_id or 'its fork'}"


def _command(query: RulesQuery, option: str) -> str:
    """Return the command that shows the same, or an empty text if no rule differs."""
    options = [*_options(query.rules), *([_LATE_OPTION] if query.with_late else [])]
    if not options:
        return ""
    session = shlex.quote(query.session_id)
    return f"seamlessflow replay merge {session}{option} --diff {' '.join(options)}"


def _options(rules: MergeRules) -> Iterator[str]:
    """Yield the options that give `seamlessflow replay merge` the rules that differ."""
    switches = {"inexact": rules.train_inexact, "undelivered": rules.train_undelivered}
    for name, trained in switches.items():
        if trained is not None:
            yield f"--{'train' if trained else 'mask'}-{name}"
    named = {
        "siblings": rules.siblings,
        "purpose": rules.purpose,
        "fold-version": rules.fold_version,
        "threads": rules.threads if rules.threads != RECORDED.threads else None,
    }
    for name, value in named.items():
        if value is not None:
            yield f"--{name} {value}"
    for name, weight in rules.return_of.items():
        yield f"--return {shlex.quote(f'{name}={weight:g}')}"
    if rules.late:
        yield _LATE_OPTION
