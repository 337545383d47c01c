"""Assembly: a finalized session's `Trajectory`. Pure: the same log gives the same bytes.

Decides which sampled tokens may be trained, and counts all others by their reason.
"""

from collections import Counter, defaultdict
from copy import copy
from dataclasses import replace

from seamlessflow.consumers.trajectories.sessions.forks import copied_node
from seamlessflow.consumers.trajectories.sessions.session import (
    MANAGER_FAILED,
    Session,
    Turn,
    TurnState,
)
from seamlessflow.consumers.trajectories.sessions.tokenless import (
    end_of,
    fitting,
    without_tokens,
)
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.infra.errors import ENDS_PROCESS
from seamlessflow.infra.worker.judged_rewards import JUDGE, JUDGING
from seamlessflow.schemas.records import SessionClosed, Trajectory, TrajectoryNode, VersionSpan
from seamlessflow.schemas.tokens import FORKED, POLICY, of_exact_version
from seamlessflow.schemas.topics import REPLIES, TRAJECTORIES

FROZEN = "frozen"
"""Reason for all turns whose policy is served and not trained."""
_NOT_ASSEMBLED = "not_assembled"
_NOT_IN_TIME = "no reward in time"
_OPEN = "open"


def assembled(
    session: Session, partition: int, limit: int = TRAJECTORIES.max_record_bytes
) -> tuple[Trajectory, Exception | None]:
    """Return the session's `trajectory` and None, or a record without tokens and the error.

    Every process that assembles it gets the same record.
    """
    try:
        return trajectory(session, partition, limit), None
    except ENDS_PROCESS:
        raise
    except Exception as error:
        return without_tokens(session, partition, _NOT_ASSEMBLED), error


def trajectory(
    session: Session, partition: int, limit: int = TRAJECTORIES.max_record_bytes
) -> Trajectory:
    """Return a session's record after its `SessionFinalized` was applied.

    Without tokens, and with status `aborted`, if it would take more than `limit` bytes, or if the
    session failed. Raises `ValueError` if the session is not finalized.
    """
    if session.failed:
        return without_tokens(session, partition, MANAGER_FAILED)
    return fitting(_whole(session, partition), limit)


def standing(
    session: Session,
    partition: int,
    epoch: int,
    at_ms: int,
    limit: int = REPLIES.max_record_bytes,
) -> Trajectory:
    """Return the record that a session would have if it were finalized now.

    Turns that are being sampled are masked. Without tokens if the record would take more than
    `limit` bytes, by default as many as a reply has room for.
    """
    view = copy(session)
    closed = session.closed or SessionClosed(
        session_id=session.opened.session_id,
        epoch=epoch,
        at_ms=at_ms,
        status=_OPEN,
        reason="",
        cause=POLICY,
        await_reward_until_ms=at_ms,
    )
    view.closed = replace(closed, judges=())  # those that it waits for have not failed
    view.finalized_at_ms = at_ms
    return trajectory(view, partition, limit)


def _whole(session: Session, partition: int) -> Trajectory:
    end = _end(session)
    nodes = session.tree.nodes
    reasons = masked_reasons(session)
    starts = _starts(nodes)
    versions = _trained_versions(nodes, reasons)
    masks = [_mask(node, reasons.get(node.node_id, "prompt")) for node in nodes]
    return replace(
        without_tokens(session, partition, end.reason),
        tokens=b"".join(node.ids for node in nodes),
        # Prompt tokens have no log-prob; zeros keep the arrays aligned.
        logprobs=b"".join(node.logprobs or bytes(len(node.ids)) for node in nodes),
        loss_mask=b"".join(masks),
        spans=_spans(nodes, starts),
        nodes=_nodes(session, starts, reasons),
        rewards=tuple(session.rewards.values()),
        status=_status(session, end.status),
        cause=end.cause,
        limit=end.limit,
        version_min=min(versions, default=None),
        version_max=max(versions, default=None),
        turns=len(session.sampled_turns),
        interrupted_turns=sum(turn.interruptions > 0 for turn in session.sampled_turns),
        match_rules=Counter(turn.started.match_rule for turn in session.sampled_turns),
        masked_tokens=_masked_tokens(nodes, masks, reasons),
        ignored_events=session.ignored,
    )


def masked_reasons(session: Session) -> dict[int, str]:
    """Return by sampled node why its tokens are not trained; empty if they are."""
    left = undelivered(session)
    abandoned = _abandoned(session, left)
    return {
        turn.node: _turn_reason(session, turn, left, abandoned) for turn in session.turns.values()
    }


def _turn_reason(session: Session, turn: Turn, left: set[int], abandoned: set[int]) -> str:
    if turn.forked:
        return FORKED
    if turn.started.frozen:
        return FROZEN
    if turn.state is not TurnState.COMPLETED:
        return str(turn.state)
    if not turn.prompt_confirmed:
        return "prompt_mismatch"
    if not turn.started.behavior_exact and not turn.started.train_inexact:
        return f"inexact_{turn.started.inexact_reason}"
    if turn.node in abandoned:
        return "abandoned"
    if turn.node in left and not turn.started.train_undelivered:
        return "undelivered"
    purpose = session.opened.purpose
    return purpose if purpose in ("eval", "explore", JUDGING) else ""


def _continued(session: Session) -> set[int]:
    """Return the nodes with at least one token that a later prompt keeps."""
    return {node.parent for node in session.tree.nodes if node.parent_end > 0}


def undelivered(session: Session) -> set[int]:
    """Return the completed nodes that no client got, as far as gateway and agent show.

    A later prompt that keeps a whole node shows that the agent has it. A part is no proof: another
    model's answer to the same prompt often begins with the same tokens.
    """
    left = {turn.node for turn in session.turns.values() if turn.undelivered}
    later = [node for node in session.tree.nodes if node.parent in left]
    return left - {node.parent for node in later if _keeps_answer(session, node)}


def _keeps_answer(session: Session, node: Node) -> bool:
    """Return True if the node's prompt keeps everything that its parent sampled.

    The token that ended the answer may be missing: a rendered history may end it with another
    token.
    """
    answer = session.tree.nodes[node.parent]
    stopped = session.turns[answer.turn_id].finish_reason != "length"
    return node.parent_end >= max(answer.length - stopped, 1)


def _abandoned(session: Session, left: set[int]) -> set[int]:
    """Return the sampled nodes that the agent gave up for another sample (same policy and prompt).

    Among several samples these are the ones that no later prompt continues. If none is continued,
    all but the latest are given up. A sample that no client got (`left`) is given up for any that a
    client got. Samples of a policy that trains `all` siblings are never given up.
    """
    samples: defaultdict[tuple[str, int, int], list[Turn]] = defaultdict(list)
    for turn in session.sampled_turns:
        if turn.state is TurnState.COMPLETED:
            # Another policy's answer to the same prompt is no second sample.
            samples[turn.started.policy, *_position(session, turn)].append(turn)
    continued = _continued(session)
    abandoned: set[int] = set()
    for siblings in samples.values():
        got = [turn for turn in siblings if turn.node not in left] or siblings
        kept = [turn for turn in got if turn.node in continued] or got[-1:]
        given_up = [turn for turn in siblings if turn.started.siblings != "all"]
        abandoned.update({turn.node for turn in given_up} - {turn.node for turn in kept})
    return abandoned


def _position(session: Session, turn: Turn) -> tuple[int, int]:
    """Return the node and length where the turn's prompt ends; the same for equal prompts."""
    node = session.tree.nodes[turn.prompt_node]
    end = node.length
    # A turn that samples a prompt again has an empty prompt node.
    while end == 0 and node.parent >= 0:
        node, end = session.tree.nodes[node.parent], node.parent_end
    return node.node_id, end


def _starts(nodes: list[Node]) -> list[int]:
    starts = []
    total = 0
    for node in nodes:
        starts.append(total)
        total += node.length
    return starts


def _mask(node: Node, reason: str) -> bytes:
    """Return a byte for each token: 1 if one known version sampled it and there is no `reason`."""
    mask = bytearray(node.length)
    # A span with two versions was sampled while weights were replaced. It is not known which
    # version sampled which token.
    if reason or node.origin != POLICY or not node.spans:
        return bytes(mask)
    ends = [span.start for span in node.spans[1:]] + [node.length]
    for span, end in zip(node.spans, ends, strict=True):
        if of_exact_version(span):
            mask[span.start : end] = b"\1" * (end - span.start)
    return bytes(mask)


def _spans(nodes: list[Node], starts: list[int]) -> tuple[VersionSpan, ...]:
    return tuple(
        VersionSpan(
            start=start + span.start,
            version_min=span.version_min,
            version_max=span.version_max,
            kv=span.kv,
        )
        for node, start in zip(nodes, starts, strict=True)
        for span in node.spans
    )


def _trained_versions(nodes: list[Node], reasons: dict[int, str]) -> set[int]:
    return {
        span.version_min
        for node in nodes
        if reasons.get(node.node_id) == ""
        for span in node.spans
        if of_exact_version(span)
    }


def _nodes(
    session: Session, starts: list[int], reasons: dict[int, str]
) -> tuple[TrajectoryNode, ...]:
    turn_rewards = _turn_rewards(session)
    left = undelivered(session)
    return tuple(
        _node(session, node, start, reasons, turn_rewards, left)
        for node, start in zip(session.tree.nodes, starts, strict=True)
    )


def _node(
    session: Session,
    node: Node,
    start: int,
    reasons: dict[int, str],
    turn_rewards: dict[str, float],
    left: set[int],
) -> TrajectoryNode:
    turn = session.turns.get(node.turn_id)
    sampled = node.origin == POLICY
    if turn is None or turn.forked:
        return copied_node(node, start, turn)
    return TrajectoryNode(
        node_id=node.node_id,
        parent=node.parent,
        parent_end=node.parent_end,
        start=start,
        length=node.length,
        origin=node.origin,
        turn_id=node.turn_id,
        policy=turn.started.policy if sampled else "",
        adapter=turn.started.adapter if sampled else "",
        module=turn.started.module,
        behavior_exact=turn.started.behavior_exact,
        logprob_temperature=turn.started.logprob_temperature,
        delivered=sampled and turn.state is TurnState.COMPLETED and node.node_id not in left,
        finish_reason=(turn.finish_reason or "interrupted") if sampled else "",
        match_rule=turn.started.match_rule,
        masked_reason=reasons.get(node.node_id, ""),
        reward=turn_rewards.get(node.turn_id) if sampled else None,
        log_offset=node.log_offset,
        control=turn.control if sampled else "",
        control_at=turn.control_at if sampled else 0,
        control_exempt=sampled and bool(turn.control) and turn.exempt,
        intervened=not sampled and turn.started.intervened,
    )


def _turn_rewards(session: Session) -> dict[str, float]:
    """Return by turn the sum over its rewards, for turns that have any."""
    sums: dict[str, float] = {}
    for reward in session.rewards.values():
        if reward.turn_id is not None:
            sums[reward.turn_id] = sums.get(reward.turn_id, 0.0) + reward.value
    return sums


def _masked_tokens(nodes: list[Node], masks: list[bytes], reasons: dict[int, str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node, mask in zip(nodes, masks, strict=True):
        masked = node.length - mask.count(1)
        if node.origin == POLICY and masked:
            counts[reasons[node.node_id] or "inexact_version"] += masked
    return counts


def _end(session: Session) -> SessionClosed:
    """Return the event that closed the session, or the judges that left it without rewards."""
    closed, _ = end_of(session)
    lacking = session.lacking_judges
    if not lacking:
        return closed
    whys = (f"{name}: {session.judge_failures.get(name, _NOT_IN_TIME)}" for name in lacking)
    return replace(closed, status="unrewarded", cause=JUDGE, reason=f"judge {'; '.join(whys)}")


def _status(session: Session, status: str) -> str:
    rewarded = any(reward.scope == "session" for reward in session.rewards.values())
    rewarded |= session.opened.purpose == JUDGING  # it needs none
    return "unrewarded" if status == "complete" and not rewarded else status
