"""Figures for turns in which agents are an environment's process or a plain callable. Pure.

`benchmarks environments` makes the turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

ENVIRONMENT, CALLABLE = "environment", "callable"
_KINDS = (CALLABLE, ENVIRONMENT)
_OURS = ("gateway", "manager", "agents", ENVIRONMENT)
_APART = ("broker", "worker")


@dataclass(frozen=True)
class AgentTurn:
    """Figures for one kind of agent in one turn."""

    kind: str
    calls_per_s: float
    cpu_us: Mapping[str, float]
    """Microseconds a call by process."""

    @property
    def ours(self) -> float:
        """Microseconds a call, over all our processes in which both kinds can differ."""
        return sum(self.cpu_us.get(name, 0.0) for name in _OURS)

    @property
    def line(self) -> str:
        """Return the turn's figures as a line of text."""
        parts = ", ".join(f"{name} {used:.0f}" for name, used in self.cpu_us.items())
        rate = f"{self.calls_per_s:.0f} calls a second"
        return f"{self.kind}: ours {self.ours:.0f} us a call ({parts}); {rate}"


def figures_of(turns: Sequence[AgentTurn]) -> dict[str, float]:
    """Return the figures by their public names."""
    figures: dict[str, float] = {}
    for kind in _KINDS:
        for name in (*_OURS, *_APART):
            figures[f"{kind}_{name}_cpu_us"] = round(_median(turns, kind, name), 1)
        figures[f"{kind}_ours_cpu_us"] = round(_ours(turns, kind), 1)
        rates = [turn.calls_per_s for turn in turns if turn.kind == kind]
        figures[f"{kind}_calls_per_s"] = round(median(rates))
    ratios = _ratios(turns)
    return {
        **figures,
        "ratio": round(_ours(turns, ENVIRONMENT) / _ours(turns, CALLABLE), 3),
        "ratio_least": round(min(ratios), 3),
        "ratio_most": round(max(ratios), 3),
    }


def table(turns: Sequence[AgentTurn]) -> str:
    """Return a row for each process, with its CPU time a call under both kinds of agents."""
    rows: list[tuple[str, ...]] = [("CPU a call, us", *_KINDS)]
    for name in (*_OURS, *_APART):
        rows.append((name, *(f"{_median(turns, kind, name):.0f}" for kind in _KINDS)))
    rows.append(("ours", *(f"{_ours(turns, kind):.0f}" for kind in _KINDS)))
    return "\n".join(f"{name:15}{first:>12}{second:>13}" for name, first, second in rows)


def _median(turns: Sequence[AgentTurn], kind: str, name: str) -> float:
    return median(turn.cpu_us.get(name, 0.0) for turn in turns if turn.kind == kind)


def _ours(turns: Sequence[AgentTurn], kind: str) -> float:
    return median(turn.ours for turn in turns if turn.kind == kind)


def _ratios(turns: Sequence[AgentTurn]) -> list[float]:
    """Return the ratio for each pair of turns."""
    by_kind = {kind: [turn.ours for turn in turns if turn.kind == kind] for kind in _KINDS}
    pairs = zip(by_kind[ENVIRONMENT], by_kind[CALLABLE], strict=True)
    return [environment / plain for environment, plain in pairs]
