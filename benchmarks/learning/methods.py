"""Methods that `benchmarks algorithms` compares, and the settings that all of them share.

All is fixed here before anything is measured. A method differs from its baseline in the settings
that its line names. Data, model, rate and session count are the same for all methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamlessflow.trainer.settings import TrainerSettings

GROUPS, GROUP_SIZE = 8, 8
POLICY = "trail"
OPTIMIZER = {"lr": 1e-3, "warmup_steps": 10}
CRITIC_RATE = 1e-3
"""The policy's rate: a critic at the default 1e-5 learns nothing in so few steps."""
TEACHER = "TEACHER"
"""Stands for the directory of a seed's teacher."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train: settings of `trainer`, and the imposed age of batches in steps."""

    trainer: Mapping[str, Any] = field(default_factory=dict)
    age: int = 0
    pacing: Mapping[str, Any] | None = None
    """Settings for `pacing` by which tasks are drawn; None: at random."""
    all_or_nothing: bool = False
    """True if a session is rewarded only for a whole trail."""

    @property
    def taught(self) -> bool:
        """Return whether it needs a teacher."""
        return "teacher" in self.trainer


def _advantage(name: str, **more: Any) -> Method:
    return Method({"advantage": name, **more})


def _loss(age: int = 0, **loss: Any) -> Method:
    return Method({"loss": loss}, age)


def _drawn(**sampler: Any) -> Method:
    """Return a method that differs in the tasks it draws, with results a step late."""
    return Method({}, 1, {"sampler": sampler}, all_or_nothing=True)


def _whole(**trainer: Any) -> Method:
    """Return a method that is rewarded only for a whole trail, with results a step late."""
    return Method(trainer, 1, all_or_nothing=True)


_EXPERTS = {"name": "rescue", "pools": {"experts": {"prefix": "experts."}}}
_OLD = 4
"""A batch's imposed age, at which losses differ: at age 0 all ratios are 1."""

COMPARISONS: Mapping[str, Mapping[str, Method]] = {
    "advantages": {
        "grpo": _advantage("grpo"),
        "turn": _advantage("turn"),
        "gae": _advantage("gae", critic={"lr": CRITIC_RATE}),
        "grpo_unscaled": _advantage("grpo_unscaled"),
        "rloo": _advantage("rloo"),
        "session_and_turn": _advantage("session_and_turn"),
        "reinforce_pp": _advantage("reinforce_pp"),
        "reinforce_pp_baseline": _advantage("reinforce_pp_baseline"),
        "turn_gae": _advantage("turn_gae", critic={"lr": CRITIC_RATE}),
        "maxrl": _advantage("maxrl"),
        "grpo_batch": _advantage("grpo_batch"),
        "gdpo": _advantage("gdpo"),
        "habc": _advantage(
            "habc",
            critic={"lr": CRITIC_RATE, "warmup_steps": 10},
            loss={"surrogate": "policy_gradient"},
        ),
    },
    "losses": {
        "ppo_clip": _loss(_OLD, surrogate="ppo_clip"),
        "gspo": _loss(_OLD, surrogate="gspo", clip_low=3e-4, clip_high=4e-4),
        "cispo": _loss(_OLD, surrogate="cispo"),
        "policy_gradient": _loss(_OLD, surrogate="policy_gradient"),
        "policy_gradient+tis": _loss(_OLD, surrogate="policy_gradient", correction="tis"),
        "policy_gradient+icepop": _loss(_OLD, surrogate="policy_gradient", correction="icepop"),
    },
    "distillation": {"grpo": _advantage("grpo"), "distill": _advantage("distill", teacher=TEACHER)},
    "samplers": {
        "shuffled": _drawn(),
        "srpo": _drawn(name="srpo"),
        "vade": _drawn(name="vade", by="level"),
        "vade_without_level": _drawn(name="vade", by="no_such_field"),
        "target": _drawn(name="target", by="level"),
        "trace": _drawn(name="trace", by="level"),
        "greso": _drawn(name="greso", by="level"),
    },
    "stored": {"without": _whole(), "rescue": _whole(replay=_EXPERTS)},
    "kl": {
        "reinforce_pp": _advantage("reinforce_pp"),
        "kl_penalty_0.001": _advantage("reinforce_pp", kl_penalty=0.001),
        "kl_penalty_0.01": _advantage("reinforce_pp", kl_penalty=0.01),
        "kl_k2_0.01": _advantage("reinforce_pp", loss={"kl": 0.01, "kl_estimator": "k2"}),
        "kl_k3_0.01": _advantage("reinforce_pp", loss={"kl": 0.01, "kl_estimator": "k3"}),
    },
}
BY_TOKENS = ("samplers", "stored")
"""Comparisons by sampled tokens: some of their methods sample more or fewer in a step."""
METHODS: Mapping[str, Method] = {
    name: method for methods in COMPARISONS.values() for name, method in methods.items()
}


def trainer_settings(
    method: Method, seed: int, steps: int, teacher: Path | None = None
) -> TrainerSettings:
    """Return the settings for a trainer. Raises `ValidationError` without a needed teacher."""
    trainer = dict(method.trainer)
    if method.taught:
        trainer["teacher"] = teacher
    shared = {
        "optimizer": OPTIMIZER,
        "seed": seed,
        "threads": 1,
        "device": "cpu",
        "mismatch_versions": 0,
    }
    sections: dict[str, Any] = {
        "run": {
            "policy": POLICY,
            "steps": steps,
            "groups_per_step": GROUPS,
            "lag": method.age,
        },
        "trainer": {**shared, **trainer},
    }
    return TrainerSettings(**sections)
