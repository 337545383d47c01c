"""A step's methods, as recorded: the choices by name that decide a step's results. Pure.

`BatchReady` and `StepCommitted` name them. So the trainer knows whether a step that it executes
again is the same.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.infra.user_functions import OwnSettings, is_user_function, source_sha256
from seamlessflow.schemas.records import StepMethod
from seamlessflow.trainer.credit import ONE_REWARD, OverlongSection
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings

RAISED: Mapping[tuple[str, str], int] = {
    # Zeros for returns that differ by rounding alone.
    ("advantage", "grpo_unscaled"): 2,
    ("advantage", "rloo"): 2,
    # The log-probs under the policy before the step, instead of the policy that sampled.
    ("advantage", "distill"): 2,
    # By default, a bound for ratios with a negative advantage.
    **{("loss", name): 2 for name in ("ppo_clip", "ppo_clip+tis", "ppo_clip+icepop")},
    # A run's last step has a rate above min_lr; earlier releases recorded no schedule.
    **{("schedule", name): 2 for name in ("linear", "cosine")},
    # An epsilon is added to the deviation that divides.
    **{
        ("advantage", name): 2
        for name in (
            "grpo",
            "turn",
            "session_and_turn",
            "reinforce_pp",
            "reinforce_pp_baseline",
            "gae",
            "turn_gae",
        )
    },
    # No signal of full size from a batch of noise.
    ("advantage", "gdpo"): 2,
    # A group that counts does so in the loss's means, with each token's terms.
    ("filter", "zero_variance"): 2,
}
"""Versions, by kind and name, of methods whose results differ from their first release.

All other methods have version 1. Raise the version whenever a method gives other results for the
same input and settings.
"""

RAISED_WITH: Mapping[tuple[str, str], int] = {
    # As for `distill`.
    ("advantage", "kl_penalty"): 1,
    # The divergence no longer has a bound beyond which it has no gradient.
    ("loss", "kl"): 1,
}
"""Number added to the version of a kind's methods if a setting is used, by kind and setting."""

SETTINGS: Mapping[str, str] = {
    "advantage": "trainer.advantage, trainer.returns, trainer.kl_penalty, trainer.reference, "
    "trainer.reference_every, trainer.teacher, trainer.critic",
    "loss": "trainer.loss",
    "surrogate": "trainer.loss.surrogate",
    "correction": "trainer.loss.correction",
    "aggregation": "trainer.loss.aggregation",
    "schedule": "trainer.optimizer.schedule",
    "update": "trainer.mini_batches, trainer.epochs, trainer.seed",
    "staleness": "trainer.on_stale, trainer.max_staleness",
    "filter": "trainer.filters, trainer.spread_over",
    "overlong": "trainer.overlong",
    "reuse": "trainer.reuse, trainer.seed",
    "replay": "trainer.replay, trainer.seed",
    "rewards": "trainer.rewards",
    "selection": "trainer.selection, trainer.seed",
    "mask": "trainer.masks",
    "pairs": "trainer.pairs",
    "opponents": "trainer.pairs.opponents",
    "chains": "trainer.chains",
}
"""Settings that choose a kind's methods."""

CHOOSING = frozenset({"replay"})
"""Kinds that choose what a step trains. Their choice is on the log, so a step that is executed
again calls none of them."""

NAMING = ("name", "surrogate", "correction")
"""Loss settings that the loss's recorded name stands for, so that its hash leaves them out."""


def step_methods(
    settings: TrainerSettings, without: Collection[str] = ()
) -> tuple[StepMethod, ...]:
    """Return the methods that every step uses under these settings, filters in the setting's order.

    Methods whose kind is in `without` are left out. The hash has no default values, so a new
    setting does not change it. Raises `FunctionUnusable`.
    """
    trainer = settings.trainer
    chosen: list[tuple[str, str, Mapping[str, Any]]] = [
        ("advantage", trainer.advantage, _credit(trainer)),
        ("loss", trainer.loss.chosen, trainer.loss.model_dump(exclude_defaults=True)),
        *_functions_of(trainer.loss),
        ("staleness", trainer.on_stale, {"max_staleness": settings.max_staleness}),
        *_overlong(trainer.overlong),
        *_rewards(trainer.reward_weights),
        *_selection(trainer),
        *_pairs(trainer),
        *_replay(trainer),
        *(("mask", name, _own(trainer.masks, name)) for name in trainer.masks),
        *(
            ("filter", name, {"action": action, **_of_filter(trainer, name)})
            for name, action in trainer.filters.items()
        ),
    ]
    if trainer.chains != "merged":
        chosen.append(("chains", trainer.chains, {}))
    if trainer.optimizer.schedule != "constant":
        chosen.append(("schedule", trainer.optimizer.schedule, {}))
    if trainer.reuse.groups:
        reuse = trainer.reuse.model_dump(exclude={"choice"})
        if trainer.reuse.choice == "random":
            reuse["seed"] = trainer.seed
        chosen.append(("reuse", trainer.reuse.choice, reuse))
    if trainer.updates > 1:
        update = {"mini_batches": trainer.mini_batches, "epochs": trainer.epochs}
        if trainer.mini_batches > 1:
            update["seed"] = trainer.seed  # draws the groups of each part
        chosen.append(("update", "mini_batches", update))
    return tuple(
        StepMethod(
            kind=kind,
            name=name,
            version=_version(kind, name, values),
            settings_hash=_hash({key: value for key, value in values.items() if key not in NAMING}),
            source_sha256="" if kind == "loss" else source_sha256(name),
        )
        for kind, name, values in chosen
        if kind not in without
    )


def differences(recorded: Sequence[StepMethod], present: Sequence[StepMethod]) -> list[str]:
    """Return a phrase for each kind whose methods differ now; it names the kind's settings.

    Empty for a step from a release that recorded no methods.
    """
    kinds = dict.fromkeys(method.kind for method in (*recorded, *present)) if recorded else {}
    phrases = []
    for kind in kinds:
        old, new = (
            [method for method in methods if method.kind == kind] for methods in (recorded, present)
        )
        if old != new:
            change = "has other values"
            if (then := listed(old)) != (now := listed(new)):
                change = f"was {then}, is {now}"
            elif edited := _edited(old, new):
                change = f"{edited} has another file than then"
            phrases.append(f"{kind} {change} ({SETTINGS.get(kind, kind)})")
    return phrases


def _edited(old: Sequence[StepMethod], new: Sequence[StepMethod]) -> str:
    """Return the first user's function whose file differs; empty if there is none."""
    pairs = zip(old, new, strict=True)
    return next((now.name for then, now in pairs if then.source_sha256 != now.source_sha256), "")


def without_settings(methods: Iterable[StepMethod]) -> list[StepMethod]:
    """Return the methods with only their versions, for recorded settings.

    They are sorted by kind and name: recorded settings do not keep the order of filters.
    """
    bare = (replace(method, settings_hash="") for method in methods)
    return sorted(bare, key=lambda method: (method.kind, method.name))


def listed(methods: Iterable[StepMethod]) -> str:
    """Return methods as readable text, such as `grpo, ppo_clip version 2`."""
    shown = (
        method.name if method.version == 1 else f"{method.name} version {method.version}"
        for method in methods
    )
    return ", ".join(shown) or "none"


def _version(kind: str, name: str, values: Mapping[str, Any]) -> int:
    """Return a method's version under its settings."""
    further = sum(
        more
        for (raised, setting), more in RAISED_WITH.items()
        if raised == kind and setting in values
    )
    return RAISED.get((kind, name), 1) + further


def _credit(trainer: TrainerSection) -> Mapping[str, Any]:
    """Return the settings that advantages depend on."""
    models = trainer.model_dump(
        mode="json",
        include={"kl_penalty", "reference", "reference_every", "teacher", "critic"},
        exclude_defaults=True,
    )
    function = _own(trainer.functions, trainer.advantage)
    return {**trainer.returns.model_dump(exclude_defaults=True), **models, **function}


def _functions_of(loss: LossSection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the user's own functions that a loss uses."""
    for kind, name in loss.user_functions.items():
        yield kind, name, _own(loss.functions, name)


def _of_filter(trainer: TrainerSection, name: str) -> Mapping[str, Any]:
    """Return the settings that a filter reads."""
    if name != "spread":
        return _own(trainer.functions, name)
    returns = trainer.returns.model_dump(
        include={"discount", "restart_below"}, exclude_defaults=True
    )
    return {"over": trainer.spread_over, **returns}


def _own(functions: OwnSettings, name: str) -> Mapping[str, Any]:
    """Return the settings of a user's function, if it has some."""
    return {"own": functions[name]} if functions.get(name) else {}


def _overlong(section: OverlongSection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the methods for long sessions, if there are any."""
    if section.length is not None:
        yield "overlong", "punishment", section.model_dump(exclude={"masked"})
    if section.masked:
        yield "overlong", "mask", {"masked": sorted(section.masked)}


def _selection(trainer: TrainerSection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the session selection, if there is one."""
    if (name := trainer.selection.name) is not None:
        values = trainer.selection.model_dump(exclude={"name"}, exclude_defaults=True)
        drawn = name == "balanced" or is_user_function(name)
        seeded = {"seed": trainer.seed} if drawn else {}
        yield "selection", name, {**values, **seeded, **_own(trainer.functions, name)}


def _pairs(trainer: TrainerSection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the rule for pairs, if the loss compares pairs, and its opponents, if it has any."""
    if trainer.loss.of_pairs:
        values = trainer.pairs.model_dump(exclude={"name", "opponents"}, exclude_defaults=True)
        yield "pairs", trainer.pairs.name, {**values, **_own(trainer.functions, trainer.pairs.name)}
    if trainer.opponents:
        yield "opponents", "earlier_policies", trainer.pairs.opponents.model_dump()


def _replay(trainer: TrainerSection) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the mixer, if there is one: which sessions it may choose, and how."""
    if (name := trainer.replay.name) is not None:
        pools = trainer.replay.model_dump(include={"pools"}, exclude_defaults=True)
        values = {**trainer.replay.arguments, **pools, "seed": trainer.seed}
        yield "replay", name, {**values, **_own(trainer.functions, name)}


def _rewards(weights: Mapping[str, float]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the reward weights, unless only `reward` counts, with weight 1."""
    if weights != ONE_REWARD:
        yield "rewards", "weighted_sum", {"weights": dict(weights)}


def _hash(values: Mapping[str, Any]) -> str:
    """Return 12 hex digits for these values; empty without values."""
    content = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:12] if values else ""
