"""Table of whole runs: together they have every named setting of `docs/algorithms`.

To add one, name it in `RUNS` with its settings; metrics that follow from them are in `promises.py`.
Settings are spread so that each estimator has a run of its own, and a fault is found beside few
others.
"""

import sys
from collections.abc import Mapping

from tests.algorithms.choices import CHOICES
from tests.algorithms.run_settings import FEW, INITIAL, TEACHER, WholeRun

_OWN = "examples.methods"
_UPDATES = {"mini_batches": 2, "epochs": 2}
_CRITIC = {"lr": 1e-3}
_TWO_VALUES = {**_CRITIC, "passes": 0.2, "warmup_steps": 1}
_WEIGHED = {"surrogate": "policy_gradient", "correction": "tis"}
_HABC = {"advantage": "habc", "loss": {"surrogate": "policy_gradient"}}
_CORRECTED = {"surrogate": "cispo", "correction": "tis"}

RUNS: Mapping[str, WholeRun] = {
    "grpo": WholeRun(
        {
            "advantage": "grpo",
            "loss": {"surrogate": "ppo_clip", "dual_clip": 3.0, "clip_low": 0.1, "clip_high": 0.3},
            "max_staleness": 0,
            "on_stale": "mask",
        },
        symptoms=("are not trained", "were dropped"),
    ),
    "grpo_unscaled": WholeRun(
        {
            "advantage": "grpo_unscaled",
            "loss": {"name": "tis", "cap": 1.5, "aggregation": "constant", "constant_length": 64},
            "layout": "packed",
            "optimizer": {"lr": 1e-3, "schedule": "linear", "warmup_steps": 1, "min_lr": 1e-5},
        }
    ),
    "rloo": WholeRun(
        {
            "layout": "padded",
            "advantage": "rloo",
            "loss": {
                "surrogate": "gspo",
                "ratio_level": "turn",
                "aggregation": "sequence_mean",
                "correction": "tis",
                "correction_level": "turn",
            },
            "max_staleness": 0,
            "on_stale": "correct",
            "micro_batch_tokens": 2048,
        }
    ),
    "turn": WholeRun(
        {
            "advantage": "turn",
            "returns": {"discount": 0.9},
            "loss": _CORRECTED,
            **_UPDATES,
        }
    ),
    "session_and_turn": WholeRun(
        {
            "advantage": "session_and_turn",
            "returns": {
                "session_weight": 0.5,
                "turn_weight": 0.5,
                "epsilon": 1e-4,
                "deviation": "sample",
            },
            "loss": {"surrogate": "ppo_clip", "correction": "none"},
            "layout": "tree",
            "on_stale": "wait",
            "optimizer": {"lr": 1e-3, "schedule": "cosine", "weight_decay": 0.01},
            **_UPDATES,
        }
    ),
    "reinforce_pp": WholeRun(
        {
            "advantage": "reinforce_pp",
            "returns": {"token_discount": 0.99},
            "kl_penalty": 0.01,
            "loss": {
                "surrogate": "policy_gradient",
                "correction": "icepop",
                "cap": 5.0,
                "floor": 0.5,
                "masks": {"geometric_mean": {"low": 0.5, "high": 2.0}},
            },
            "overlong": {"length": 40, "cache": 20, "weight": 0.5},
        }
    ),
    "reinforce_pp_baseline": WholeRun(
        {
            "advantage": "reinforce_pp_baseline",
            "returns": {"entropy_scale": 1.0},
            "loss": {"entropy": 0.01, "kl": 0.01, "kl_estimator": "k3", "kl_weighted": True},
            "reference_every": 2,
            "gradient_checkpointing": True,
            "optimizer": {"lr": 1e-3, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "clip_norm": 0.5},
        }
    ),
    "gae": WholeRun(
        {
            "advantage": "gae",
            "returns": {"trace": 0.9},
            "critic": {**_CRITIC, "clip": 0.3},
            "reference": TEACHER,
            "loss": {
                "surrogate": "gspo",
                "ratio_level": "session",
                "correction": "tis",
                "correction_level": "session",
                "kl": 0.01,
                "kl_estimator": "k2",
            },
            "layout": "tree",
        }
    ),
    "turn_gae": WholeRun(
        {
            "advantage": "turn_gae",
            "returns": {"hybrid_scale": 0.5},
            "critic": {**_CRITIC, "model": INITIAL},
            "loss": {"surrogate": "ppo_clip", "correction": "tis"},
            **_UPDATES,
        },
        ranks=2,
    ),
    "gae_head": WholeRun(
        {
            "advantage": "gae",
            "critic": {**_CRITIC, "kind": "head", "coefficient": 0.5},
            "loss": {"surrogate": "ppo_clip", "correction": "tis"},
            **_UPDATES,
        }
    ),
    "habc": WholeRun(
        {**_HABC, "critic": {**_TWO_VALUES, "kind": "head", "coefficient": 0.1}, "layout": "tree"}
    ),
    "habc_model": WholeRun(
        {**_HABC, "critic": _TWO_VALUES, "loss": _WEIGHED, **_UPDATES},
        more={"agents": {"callable": "tests.algorithms.helped:run"}},
        ranks=2,
    ),
    "reuse": WholeRun(
        {
            "advantage": "grpo",
            "reuse": {"groups": 2, "uses": 3, "max_staleness": 4, "choice": "newest"},
        }
    ),
    "reuse_at_random": WholeRun(
        {
            "advantage": "reinforce_pp",
            "loss": {"surrogate": "ppo_clip", "correction": "tis"},
            "reuse": {"groups": 1, "choice": "random"},
        }
    ),
    "rewards": WholeRun(
        {"rewards": {"reward": 1.0, "first": 0.5}},
        more={"agents": {"callable": "tests.algorithms.two_rewards:run"}},
    ),
    "judges": WholeRun(
        {
            "advantage": "session_and_turn",
            "rewards": {"reward": 1.0, "brief": 0.5, "various": 0.5, "alive": 0.5},
        },
        more={
            "rewards": {
                "workers": 2,
                "judges": {
                    "brief": {"callable": "tests.algorithms.judges:brief"},
                    "various": {"command": [sys.executable, "-m", "tests.algorithms.judges"]},
                    "alive": {"callable": "tests.algorithms.judges:alive", "of": "turns"},
                },
            }
        },
        metrics=("reward/brief", "reward/various", "reward/alive"),
    ),
    "gdpo": WholeRun(
        {"advantage": "gdpo", "rewards": {"reward": 1.0, "first": 0.5}},
        more={"agents": {"callable": "tests.algorithms.two_rewards:run"}},
    ),
    "grpo_batch": WholeRun({"advantage": "grpo_batch"}),
    "per_request": WholeRun(
        {
            "chains": "per_request",
            "advantage": "turn",
            "loss": {"correction": "tis", "aggregation": "sequence_mean"},
            "layout": "tree",
            **_UPDATES,
        }
    ),
    "maxrl": WholeRun(
        {"advantage": "maxrl"},
        more={"evaluation": {"tasks": FEW, "every": 2, "samples": 4, "success": 0.5, "k": [1, 3]}},
        metrics=(
            "eval_pass_at/3",
            "eval_pass_at_low/3",
            "eval_pass_all/3",
            "eval_pass_all_high/1",
            "eval_turns",
            "eval_sampled_tokens",
            "eval_prompt_tokens",
        ),
    ),
    "distill": WholeRun(
        {
            "advantage": "distill",
            "teacher": TEACHER,
            "loss": {"name": "ppo_clip"},
            "dtype": "bfloat16",
            "master_dtype": "bfloat16",
        }
    ),
    "cloning": WholeRun(
        {
            "loss": {"surrogate": "cloning"},
            "filters": {"zero_variance": "drop", "untrainable": "count"},
            "overlong": {"masked": ["turns", "context", "max_tokens", "time"]},
            "max_staleness": 0,
            "on_stale": "drop",
        },
        # Most tasks take less, or a step may have no session that is trained.
        run={"turn_limit": 6},
        metrics=("overlong_share", "masked/overlong"),
        symptoms=("ended at a limit", "are not trained", "were dropped"),
        noisy=("agents",),  # its calls are refused behind the last turn
    ),
    "sapo": WholeRun(
        {
            "loss": {
                "surrogate": "sapo",
                "gate_positive": 1.5,
                "gate_negative": 2.0,
                "aggregation": "sequence_mean",
                "masks": {
                    "outlier": {"low": 1e-4, "high": 1e4, "level": "token"},
                    "off_policy": {"most": 0.5, "level": "turn"},
                    "geometric_mean": {"low": 0.5, "level": "turn"},
                },
            },
            **_UPDATES,
        }
    ),
    "dppo": WholeRun(
        {
            "loss": {
                "surrogate": "dppo",
                "divergence": "kl",
                "divergence_bound": 0.05,
                "masks": {"outlier": {"low": 1e-4, "level": "turn"}, "off_policy": {"most": 0.5}},
            },
            **_UPDATES,
        }
    ),
    "icepop": WholeRun({"loss": {"name": "icepop"}, "dtype": "float16", "seed": 1}),
    "adapter": WholeRun(
        {"adapter": {"rank": 4, "alpha": 4, "targets": ["q_proj", "v_proj"]}, "loss": {"kl": 0.05}},
    ),
    "extremes": WholeRun(
        {
            "advantage": "session_and_turn",
            "returns": {"discount": 0.5, "restart_below": 0.01, "hybrid_scale": 0.1},
            "selection": {"name": "extremes", "best": 1, "worst": 2},
            "masks": {"high_entropy_turns": {"keep": 0.5}},
        },
        metrics=("masked/unselected", "masked/high_entropy_turns"),
        symptoms=("are not trained",),
    ),
    "max_variance": WholeRun(
        {
            "advantage": "grpo_batch",
            "selection": {"name": "max_variance", "keep": 3, "baseline": "all"},
            "filters": {"spread": "count", "untrainable": "drop"},
            "spread_over": 0.01,
        },
        metrics=("masked/unselected",),
    ),
    "balanced": WholeRun(
        {
            "selection": {"name": "balanced", "keep": 3, "baseline": "selected"},
            "filters": {"spread": "drop", "untrainable": "drop"},
            "spread_over": 0.0,
        },
        metrics=("masked/unselected",),
        symptoms=("were dropped",),
    ),
    "pairs_squared": WholeRun(
        {
            "loss": {"surrogate": "pairs_squared"},
            "pairs": {
                "name": "extremes",
                "eta": 0.05,
                "reference_share": 0.5,
                "opponents": {"every": 1, "most": 3, "weights": [3, 2, 1]},
            },
            "layout": "tree",
        },
        metrics=("masked/unpaired",),
        ranks=2,
    ),
    "pairs_logistic": WholeRun(
        {
            "loss": {"surrogate": "pairs_logistic"},
            "pairs": {"name": "all", "beta": 0.5},
            # A third of the right calls is a pass, or hardly a session would be one.
            "rewards": {"reward": 3.0},
            "filters": {"zero_variance": "count", "untrainable": "count"},
            "layout": "packed",
        },
    ),
    "own_pairs": WholeRun(
        {
            "loss": {"surrogate": "pairs_logistic"},
            "pairs": {"name": f"{_OWN}.pairs:shorter_passes"},
            "functions": {f"{_OWN}.pairs:shorter_passes": {"at_least": 0.3}},
            "filters": {"untrainable": "count"},
            "reference": TEACHER,
        },
    ),
    "own_advantage": WholeRun(
        {
            "advantage": f"{_OWN}.advantage:above_quantile",
            "filters": {"untrainable": "drop", f"{_OWN}.filter:too_easy": "count"},
            "selection": {"name": f"{_OWN}.selection:contrasts"},
            "masks": {f"{_OWN}.mask:later_turns": {"first": 1}},
            "functions": {
                f"{_OWN}.advantage:above_quantile": {"quantile": 0.75},
                f"{_OWN}.filter:too_easy": {"above": 0.8},
            },
        },
        symptoms=("are not trained",),
        more={
            "scheduler": {
                "policy": f"{_OWN}.strategy:keeps_some",
                "functions": {f"{_OWN}.strategy:keeps_some": {"kept": ["w9"]}},
            }
        },
    ),
    "own_loss": WholeRun(
        {
            "filters": {"untrainable": "drop", f"{_OWN}.filter:too_easy": "drop"},
            "loss": {
                "surrogate": f"{_OWN}.surrogate:tapered",
                "correction": f"{_OWN}.correction:flattened",
                "aggregation": f"{_OWN}.aggregation:root_of_length",
                "functions": {f"{_OWN}.correction:flattened": {"power": 0.8}},
            },
            **_UPDATES,
        },
    ),
    "mixed_precision": WholeRun({"compute_dtype": "bfloat16", "weights_dtype": "bfloat16"}),
    **CHOICES,
}
