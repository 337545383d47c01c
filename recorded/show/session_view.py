"""Sessions for the terminal: one session's token tree, and a list of finalized sessions.

Pure; makes `rich` objects. Prompt tokens are dim, trained ones green, and sampled but untrained
ones yellow. Where the policy version changes inside a turn, the newer part is underlined.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as RichTree

from seamlessflow.consumers.trajectories.sessions.assemble import masked_reasons, undelivered
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.consumers.trajectories.sessions.tree import Node
from seamlessflow.schemas.records import Reward, Trajectory
from seamlessflow.schemas.tokens import POLICY, of_exact_version, unpack
from seamlessflow.trainer.metrics.unlearned import listed

Spell = Callable[[Sequence[int]], str]
"""Function that returns the text for token ids."""
_TRAINED = "green"
_MASKED = "yellow"
_GIVEN = "dim"
_WIDEST_STATUS = len("unrewarded")


def session_view(session: Session, spell: Spell | None, every_token: bool = False) -> RichTree:
    """Return a session's tree; without `spell` tokens are shown as ids."""
    reasons = masked_reasons(session)
    left = undelivered(session)
    view = RichTree(_headline(session, reasons))
    turns = {turn.prompt_node: turn for turn in session.turns.values()}
    turns |= {turn.node: turn for turn in session.turns.values()}
    # A stack instead of recursion: a session may have thousands of turns, each below the last.
    places = [(root, view) for root in reversed(session.tree.roots)]
    while places:
        node_id, above = places.pop()
        node = session.tree.nodes[node_id]
        reason = reasons.get(node_id, "") if node.origin == POLICY else "given"
        branch = above.add(_caption(node, turns.get(node_id), reason, node_id in left))
        if node.length:
            branch.add(_table(node, spell, reason) if every_token else _text(node, spell, reason))
        places += [(child, branch) for child in reversed(node.children)]
    return view


def list_view(trajectories: Sequence[Trajectory]) -> Table:
    """Return a row for each session. Ids are never cut, since `show SESSION` needs them whole."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    widest = max((len(trajectory.session_id) for trajectory in trajectories), default=0)
    table.add_column("session", no_wrap=True, min_width=widest)
    table.add_column("task", no_wrap=True)
    table.add_column("status", no_wrap=True, min_width=_WIDEST_STATUS)
    for name in ("reward", "turns", "tokens", "trainable", "versions"):
        table.add_column(name, justify="right", no_wrap=True)
    for trajectory in trajectories:
        table.add_row(
            trajectory.session_id,
            trajectory.task_id,
            trajectory.status,
            ", ".join(map(_reward, trajectory.rewards)),
            str(trajectory.turns),
            str(len(trajectory.loss_mask)),
            str(sum(trajectory.loss_mask)),
            _version_range(trajectory),
        )
    return table


def _headline(session: Session, reasons: Mapping[int, str]) -> Text:
    opened = session.opened
    closed = session.closed
    line = Text.assemble(
        (opened.session_id, "bold"),
        f"  policy {opened.policy}, {opened.purpose}, task {opened.task_id or '-'}, ",
        f"group {opened.group_id or '-'}, {len(session.sampled_turns)} turns",
    )
    if opened.fork is not None:
        origin = opened.fork.origin
        copied = len(session.turns) - len(session.sampled_turns)
        line.append(f", forked from {origin.session_id} behind the {origin.behind} of turn ")
        line.append(f"{origin.turn_id} ({opened.fork.mode}, {copied} turns copied)")
    if closed is None:
        line.append(", open", style="cyan")
    else:
        reason = next(reversed(closed.reason.splitlines()), "")  # of a traceback, the error
        because = f" ({closed.cause}: {reason})" if reason else ""
        line.append(f", {closed.status}{because}")
        if closed.limit:
            line.append(f", ended at {closed.limit}", style="yellow")
    for reward in session.rewards.values():
        about = f" of {reward.turn_id}" if reward.turn_id else ""
        line.append(f", {reward.name}{about} {reward.value:g}", style="bold magenta")
    masked = Counter[str]()
    for node_id, reason in reasons.items():
        node = session.tree.nodes[node_id]
        masked[reason] += node.length if reason and node.origin == POLICY else 0
    if counts := {reason: count for reason, count in masked.most_common() if count}:
        line.append(f", not trained: {listed(counts)} tokens", style=_MASKED)
    if session.ignored:
        ignored = ", ".join(f"{count} {reason}" for reason, count in session.ignored.items())
        line.append(f", ignored: {ignored}", style="red")
    return line


def _caption(node: Node, turn: Turn | None, reason: str, undelivered: bool) -> Text:
    if turn is None or turn.forked:
        copied = f"turn {turn.copied_from}" if turn else "the chosen prompt"
        what = f"{node.origin}, {node.length} tokens, copied from {copied}"
        return Text.assemble((f"node {node.node_id} ", "bold"), what)
    if node.origin != POLICY:
        rule = turn.started.match_rule
        detail = f" ({turn.started.match_detail})" if turn.started.match_detail else ""
        behind = (
            f", behind {node.parent_end} tokens of node {node.parent}" if node.parent >= 0 else ""
        )
        ambiguous = Text(", ambiguous", "red") if turn.started.ambiguous else Text()
        return Text.assemble(
            (f"node {node.node_id} ", "bold"),
            f"{node.origin}, {node.length} tokens{behind}, matched by ",
            (rule + detail, "cyan"),
            ambiguous,
            (", with an intervention", _MASKED) if turn.started.intervened else "",
        )
    return Text.assemble(
        (f"node {node.node_id} ", "bold"),
        f"turn {node.turn_id}, {node.length} tokens, {_versions(node)}, ",
        f"{turn.finish_reason or turn.state}{_dispatches(turn)}, {_mean_logprob(node)}, ",
        ("trained", _TRAINED) if not reason else (f"masked: {reason}", _MASKED),
        (", not delivered", _MASKED) if undelivered else "",
    )


def _versions(node: Node) -> str:
    spans = [
        f"{span.version_min}"
        if of_exact_version(span)
        else f"{span.version_min}-{span.version_max}?"
        for span in node.spans
    ]
    return f"version {' → '.join(spans)}" if spans else "no version"


def _dispatches(turn: Turn) -> str:
    return f", continued {turn.interruptions} times" if turn.interruptions else ""


def _mean_logprob(node: Node) -> str:
    values = np.frombuffer(bytes(node.logprobs), "<f4")
    return f"mean log-prob {values.mean():.3f}" if len(values) else "no log-probs"


def _text(node: Node, spell: Spell | None, reason: str) -> Text:
    """Return the node's tokens as running text, underlined after a change of version."""
    ids = unpack(bytes(node.ids))
    starts = [span.start for span in node.spans] or [0]
    text = Text()
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else len(ids)
        style = _style(reason) + (" underline" if place else "")
        text.append(_spelt(ids[start:end], spell), style=style)
    return text


def _table(node: Node, spell: Spell | None, reason: str) -> Table:
    """Return a row for each token."""
    table = Table("token", "id", "text", "log-prob", "version", "mask", box=None)
    ids = unpack(bytes(node.ids))
    logprobs = np.frombuffer(bytes(node.logprobs), "<f4").tolist() or [None] * len(ids)
    versions = _version_of_each(node, len(ids))
    for place, (token, logprob, version) in enumerate(zip(ids, logprobs, versions, strict=True)):
        table.add_row(
            str(place),
            str(token),
            Text(repr(_spelt([token], spell)), style=_style(reason)),
            "" if logprob is None else f"{logprob:.6f}",
            version,
            "1" if not reason else f"0 {reason}",
        )
    return table


def _version_of_each(node: Node, count: int) -> list[str]:
    versions = [""] * count
    for span in node.spans:
        exact = of_exact_version(span)
        name = str(span.version_min) if exact else f"{span.version_min}-{span.version_max}?"
        versions[span.start :] = [name] * (count - span.start)
    return versions


def _spelt(ids: Sequence[int], spell: Spell | None) -> str:
    return spell(ids) if spell else " ".join(map(str, ids)) + " "


def _style(reason: str) -> str:
    if not reason:
        return _TRAINED
    return _GIVEN if reason == "given" else _MASKED


def _reward(reward: Reward) -> str:
    return f"{reward.value:g}" if reward.name == "reward" else f"{reward.name} {reward.value:g}"


def _version_range(trajectory: Trajectory) -> str:
    if trajectory.version_min == trajectory.version_max:
        return "-" if trajectory.version_min is None else str(trajectory.version_min)
    return f"{trajectory.version_min}-{trajectory.version_max}"
