"""Seams: settings that name a built-in method, or a user's own function. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy, sections_path
from seamlessflow.infra.user_functions import is_user_function
from seamlessflow.infra.variables import SettingPath
from seamlessflow.infra.worker.control_rule import ControlSection


@dataclass(frozen=True, slots=True)
class Seam:
    """A setting that names a function, and how that is called."""

    setting: tuple[str, ...]
    arguments: tuple[str, ...]
    """Names of its positional arguments; its own settings are keyword arguments."""
    returns: str
    """Its result, in a few words."""
    functions: tuple[str, ...] = ("trainer", "functions")
    """The setting with the settings for such functions."""


_OF_LOSS = ("trainer", "loss", "functions")
ADVANTAGE = Seam(
    ("trainer", "advantage"),
    ("episodes", "rules"),
    "for each session of a group an array, the advantage of each trained token",
)
FILTER = Seam(("trainer", "filters"), ("group", "rules"), "whether a group leaves the loss")
SELECTION = Seam(
    ("trainer", "selection", "name"),
    ("episodes", "rules", "random"),
    "for each session of a group whether it is trained",
)
PAIRS = Seam(
    ("trainer", "pairs", "name"),
    ("episodes",),
    "a list of pairs of places in the group, the session to prefer first",
)
MASK = Seam(
    ("trainer", "masks"),
    ("episodes",),
    "for each session of a group an array, which of its trained tokens stay in the loss",
    ("trainer", "masks"),
)
SURROGATE = Seam(
    ("trainer", "loss", "surrogate"),
    ("tokens", "weights_N", "settings"),
    "Losses, the loss of each trained token",
    _OF_LOSS,
)
CORRECTION = Seam(
    ("trainer", "loss", "correction"),
    ("tokens", "settings"),
    "CorrectionWeights, the weight of each trained token",
    _OF_LOSS,
)
AGGREGATION = Seam(
    ("trainer", "loss", "aggregation"),
    ("sessions_C", "trained_C", "settings"),
    "the weight of a trained token of each chain",
    _OF_LOSS,
)
MIXER = Seam(
    ("trainer", "replay", "name"),
    ("step", "fresh", "pools", "random"),
    "a Plan, the stored groups and sessions that a step trains",
)
STRATEGY = Seam(
    ("scheduler", "policy"),
    ("snapshot",),
    "a list of Wanted, roles of workers",
    ("scheduler", "functions"),
)
_OF_PACING = ("pacing", "functions")
SAMPLER = Seam(
    ("pacing", "sampler", "name"),
    ("ask",),
    "a list of TaskChoice, at most ask.count tasks to draw",
    _OF_PACING,
)
PREDICTION = Seam(
    ("pacing", "sampler", "predict"),
    ("candidate",),
    "the rate of passes of a task, from 0 to 1",
    _OF_PACING,
)
FORK_PREDICTION = Seam(
    ("pacing", "forks_predict"),
    ("forked",),
    "the chance that a session that goes on from a turn passes, from 0 to 1",
    _OF_PACING,
)
TERMS = Seam(
    ("pacing", "terms", "name"),
    ("candidate", "choice", "random"),
    "the TaskChoice with other samples and turns, or an opponent",
    _OF_PACING,
)
CONTROL = Seam(
    ("rollout", "control", "name"),
    (),
    "a rule with top, begin(turn) -> state, and step(state, token) -> state, TurnStop or None",
    ("rollout", "control", "settings"),
)
SEAMS = (
    ADVANTAGE,
    FILTER,
    SELECTION,
    PAIRS,
    MASK,
    MIXER,
    SURROGATE,
    CORRECTION,
    AGGREGATION,
    SAMPLER,
    PREDICTION,
    FORK_PREDICTION,
    TERMS,
    CONTROL,
    STRATEGY,
)


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that a configuration names and the user wrote."""

    seam: Seam
    path: SettingPath
    name: str
    settings: Mapping[str, Any]


def named_functions(config: RunConfig) -> list[NamedFunction]:
    """Return the functions that a configuration names in seams, for every policy."""
    pacing = config.pacing
    return [
        *method_functions(config),
        *_named(config, SAMPLER, [pacing.sampler.name]),
        *_named(config, PREDICTION, [pacing.sampler.predict]),
        *_named(config, FORK_PREDICTION, [pacing.forks_predict]),
        *_named(config, TERMS, [pacing.terms.name]),
        *_named(config, STRATEGY, [config.scheduler.policy]),
        *_controls(config.rollout.control),
    ]


def method_functions(config: RunConfig) -> list[NamedFunction]:
    """Return the functions that shape each policy's steps."""
    functions: dict[tuple[str, str], NamedFunction] = {}
    for policy_config in each_policy(config):
        trainer = policy_config.trainer
        names: Mapping[Seam, Iterable[str | None]] = {
            ADVANTAGE: [trainer.advantage],
            FILTER: trainer.filters,
            SELECTION: [trainer.selection.name],
            PAIRS: [trainer.pairs.name],
            MASK: trainer.masks,
            MIXER: [trainer.replay.name],
            SURROGATE: [trainer.loss.surrogate],
            CORRECTION: [trainer.loss.correction],
            AGGREGATION: [trainer.loss.aggregation],
        }
        for seam, of_seam in names.items():
            for function in _named(policy_config, seam, of_seam):
                functions.setdefault((function.name, repr((seam, function.settings))), function)
    return list(functions.values())


def _controls(section: ControlSection) -> list[NamedFunction]:
    """Return the user's rule that ends turns; its settings stand beside its name."""
    if section.name is None or not is_user_function(section.name):
        return []
    return [NamedFunction(CONTROL, CONTROL.setting, section.name, section.settings)]


def _named(config: RunConfig, seam: Seam, names: Iterable[str | None]) -> list[NamedFunction]:
    section: Any = config
    for part in seam.functions:
        section = getattr(section, part)
    of_policy = seam.setting[0] == "trainer"
    path = (*(sections_path(config) if of_policy else ()), *seam.setting)
    return [
        NamedFunction(seam, path, name, section.get(name, {}))
        for name in names
        if name is not None and is_user_function(name)
    ]
