"""Cases of a gang of ranks on the CPU, and a further rank that follows through all of them.

python -m tests.integration.trainer.gang.whole_steps MODEL, with the place of the meeting and the
settings of a case as JSON in each line of standard input.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamlessflow.trainer.ranks.torch_devices import chosen_backend
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.gangs.meetings import line

BASE: Mapping[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "micro_batch_tokens": 40,
    "filters": {},
    # With so large an epsilon weights move in proportion to their gradient, not by its sign.
    "optimizer": {"lr": 0.05, "eps": 1.0},
    "critic": {"lr": 0.05},
}
CASES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"loss": {"surrogate": "dppo", "divergence_bound": 0.05, "entropy": 0.05}},
    "sessions": {
        "layout": "packed",
        "loss": {"surrogate": "gspo", "aggregation": "sequence_mean", "kl": 0.2},
        "returns": {"entropy_scale": 0.5, "hybrid_scale": 0.2},
    },
    "turns in trees": {
        "layout": "tree",
        "micro_batch_tokens": 16,
        "advantage": "turn",
        "loss": {
            "surrogate": "gspo",
            "ratio_level": "turn",
            "correction": "tis",
            "correction_level": "turn",
        },
        "mini_batches": 2,
        "epochs": 2,
    },
    "critic in trees": {
        "layout": "tree",
        "micro_batch_tokens": 16,
        "advantage": "gae",
        "kl_penalty": 0.1,
        "loss": {"correction": "tis", "aggregation": "constant", "constant_length": 9},
        "mini_batches": 2,
        "epochs": 2,
    },
    "critic of turns": {
        "layout": "padded",
        "advantage": "turn_gae",
        "loss": {"surrogate": "cispo", "kl": 0.2, "kl_estimator": "k2", "entropy": 0.05},
        "mini_batches": 2,
    },
    "critic as a head": {
        "layout": "packed",
        "advantage": "gae",
        "critic": {"kind": "head", "coefficient": 0.5, "lr": 0.05},
        "returns": {"hybrid_scale": 0.5},
        "mini_batches": 2,
    },
    "two values": {
        "layout": "tree",
        "micro_batch_tokens": 16,
        "advantage": "habc",
        "critic": {"lr": 0.05, "passes": 0.5, "warmup_steps": 0},
        "loss": {"surrogate": "policy_gradient", "correction": "tis"},
        "mini_batches": 2,
    },
    "two values of a head": {
        "layout": "packed",
        "advantage": "habc",
        "critic": {
            "kind": "head",
            "coefficient": 0.5,
            "lr": 0.05,
            "passes": 0.5,
            "warmup_steps": 0,
        },
        "loss": {"surrogate": "policy_gradient"},
    },
    "whole sessions corrected": {
        "layout": "packed",
        "advantage": "reinforce_pp",
        "loss": {
            "surrogate": "policy_gradient",
            "correction": "tis",
            "correction_level": "session",
            "aggregation": "sequence_mean",
        },
        "epochs": 2,
    },
    "student": {
        "advantage": "distill",
        "loss": {"surrogate": "policy_gradient", "correction": "icepop"},
        "mini_batches": 2,
    },
    "adapter": {
        "layout": "packed",
        "adapter": {"rank": 2},
        "loss": {"kl": 0.2},
        "mini_batches": 2,
    },
    "renewed reference": {
        "layout": "packed",
        "loss": {"surrogate": "sapo", "kl": 0.2, "masks": {"outlier": {"high": 5.0}}},
        "reference_every": 1,
        "mini_batches": 2,
    },
    "pairs against earlier policies": {
        "layout": "tree",
        "micro_batch_tokens": 16,
        "loss": {"surrogate": "pairs_squared", "kl": 0.2},
        "pairs": {"opponents": {"every": 1, "most": 4}},
    },
    "pairs": {"layout": "packed", "loss": {"surrogate": "pairs_logistic"}},
    "imitation": {"loss": {"surrogate": "cloning"}},
}
"""Settings of the trainer by the name of a case."""


GANGS: Mapping[str, Mapping[str, Any]] = {
    "fsdp2": {"backend": "fsdp2"},
    "megatron-data": {"backend": "megatron"},
    "megatron-tensor": {"backend": "megatron", "megatron": {"tensor_parallel": 2}},
}
"""Settings of the trainer by the name of a way to divide the work."""


def proven(gang: str, case: str) -> bool:
    """Return whether the settings of a gang allow those of a case."""
    return gang == "fsdp2" or "adapter" not in case


def section(case: Mapping[str, Any], **more: Any) -> TrainerSection:
    """Return the settings of a case."""
    return TrainerSection.model_validate({**BASE, **case, **more})


def main() -> None:
    for text in sys.stdin:
        place, _, settings = text.partition(" ")
        section = TrainerSection.model_validate_json(settings)
        backend = chosen_backend(section)(Path(sys.argv[1]), section, line(place, section.rank))
        backend.follow()
        backend.close()


if __name__ == "__main__":
    main()
