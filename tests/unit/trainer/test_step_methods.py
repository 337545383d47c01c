"""Methods of a step as they are recorded, and how a change of them is told."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import differences, listed, step_methods, without_settings
from tests.paths import ROOT


def methods(**trainer: Any) -> Any:
    return step_methods(TrainerSettings(trainer=trainer))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"advantage": "turn"},
            "advantage was grpo version 2, is turn version 2 (trainer.advantage, trainer.returns, ",
        ),
        ({"returns": {"discount": 0.5}}, "advantage has other values (trainer.advantage"),
        ({"loss": {"name": "tis"}}, "loss was ppo_clip version 2, is tis (trainer.loss)"),
        ({"loss": {"surrogate": "gspo"}}, "loss was ppo_clip version 2, is gspo (trainer.loss)"),
        (
            {"loss": {"correction": "tis"}},
            "loss was ppo_clip version 2, is ppo_clip+tis version 2 (trainer.loss)",
        ),
        ({"loss": {"aggregation": "sequence_mean"}}, "loss has other values (trainer.loss)"),
        ({"loss": {"clip_high": 0.5}}, "loss has other values (trainer.loss)"),
        ({"loss": {"masks": {"outlier": {"low": 0.1}}}}, "loss has other values (trainer.loss)"),
        ({"on_stale": "drop"}, "staleness was mask, is drop (trainer.on_stale"),
        ({"max_staleness": 7}, "staleness has other values"),
        ({"chains": "per_request"}, "chains was none, is per_request (trainer.chains)"),
        ({"filters": {}}, "filter was zero_variance version 2, untrainable, is none (trainer."),
        (
            {"filters": {"zero_variance": "drop", "untrainable": "drop"}},
            "filter has other values",
        ),
        (
            {"filters": {"untrainable": "drop", "zero_variance": "count"}},
            "filter was zero_variance version 2, untrainable, is untrainable, zero_var",
        ),
    ],
)
def test_a_change_of_a_setting_is_told_with_its_name(changed: dict[str, Any], message: str) -> None:
    (difference,) = differences(methods(), methods(**changed))
    assert difference.startswith(message)


@pytest.mark.parametrize(
    "same", [{}, {"optimizer": {"lr": 0.5}}, {"loss": {"name": "ppo_clip", "clip_low": 0.2}}]
)
def test_equal_methods_are_recorded_alike(same: dict[str, Any]) -> None:
    assert methods(**same) == methods()
    assert differences(methods(), methods(**same)) == []


@pytest.mark.parametrize(
    ("recorded", "present"),
    [
        ({"epochs": 2}, {"epochs": 3}),
        ({"mini_batches": 2}, {"mini_batches": 4}),
        ({"mini_batches": 2, "seed": 1}, {"mini_batches": 2, "seed": 2}),
    ],
    ids=["epochs", "parts", "order"],
)
def test_other_updates_of_a_step_are_told(
    recorded: dict[str, Any], present: dict[str, Any]
) -> None:
    (difference,) = differences(methods(**recorded), methods(**present))
    assert difference.startswith("update has other values (trainer.mini_batches, ")
    (begun,) = differences(methods(), methods(**present))
    assert begun.startswith("update was none, is mini_batches")


def test_the_seed_changes_no_step_of_one_part() -> None:
    assert methods(seed=1) == methods(seed=2)
    assert methods(epochs=2, seed=1) == methods(epochs=2, seed=2)


def test_reuse_of_groups_is_a_method_with_its_own_settings() -> None:
    some = methods(reuse={"groups": 2})
    (begun,) = differences(methods(), some)
    assert begun.startswith("reuse was none, is random (trainer.reuse, trainer.seed)")
    assert differences(some, methods(reuse={"groups": 2, "uses": 3}))
    assert differences(some, methods(reuse={"groups": 2}, seed=1))
    newest = {"groups": 2, "choice": "newest"}
    assert methods(reuse=newest) == methods(reuse=newest, seed=1)


def test_a_loss_by_its_name_is_the_same_as_by_its_choices() -> None:
    assert methods(loss={"name": "tis"}) == methods(loss={"surrogate": "cispo"})
    both = {"surrogate": "policy_gradient", "correction": "icepop"}
    assert methods(loss={"name": "icepop"}) == methods(loss=both)


def test_a_default_has_no_hash_so_a_new_setting_changes_none() -> None:
    assert [method.settings_hash for method in methods()][:2] == ["", ""]


def test_a_raised_version_is_a_difference_whatever_the_settings_are() -> None:
    present = [
        replace(method, version=9) if method.kind == "loss" else method for method in methods()
    ]
    changes = differences(without_settings(methods()), without_settings(present))
    assert changes == ["loss was ppo_clip version 2, is ppo_clip version 9 (trainer.loss)"]
    assert without_settings(reversed(methods())) == without_settings(methods())
    assert listed(present).startswith("grpo version 2, ppo_clip version 9, mask")


def test_a_schedule_is_a_method_and_another_one_than_that_of_earlier_releases() -> None:
    falling = methods(optimizer={"schedule": "cosine"})
    (difference,) = differences(methods(), falling)
    assert difference == "schedule was none, is cosine version 2 (trainer.optimizer.schedule)"


@pytest.mark.parametrize("name", ["grpo", "turn", "session_and_turn", "reinforce_pp", "gae"])
def test_methods_that_got_an_epsilon_are_others_than_those_of_earlier_releases(name: str) -> None:
    (present,) = [method for method in methods(advantage=name) if method.kind == "advantage"]
    (difference,) = differences([replace(present, version=1)], [present])
    assert difference.startswith(f"advantage was {name}, is {name} version 2 (trainer.advantage")


def test_gdpo_that_leaves_noise_small_is_another_than_that_of_earlier_runs() -> None:
    (present,) = [method for method in methods(advantage="gdpo") if method.kind == "advantage"]
    (difference,) = differences([replace(present, version=1)], [present])
    assert difference.startswith("advantage was gdpo, is gdpo version 2 (trainer.advantage")


def test_settings_of_returns_are_a_part_of_the_recorded_advantage() -> None:
    for changed in ({"epsilon": 1e-4}, {"deviation": "sample"}, {"hybrid_scale": 0.1}):
        (difference,) = differences(methods(), methods(returns=changed))
        assert difference.startswith("advantage has other values (trainer.advantage")
    assert methods(returns={"hybrid_scale": 0.0}) == methods()


@pytest.mark.parametrize("advantage", ["gae", "turn_gae", "reinforce_pp", "reinforce_pp_baseline"])
def test_a_version_of_a_setting_is_one_of_the_methods_that_use_it(advantage: str) -> None:
    def raised(**settings: Any) -> list[int]:
        """Return by how much the versions of advantage and loss are higher with the settings."""
        plain, changed = methods(advantage=advantage), methods(advantage=advantage, **settings)
        return [b.version - a.version for a, b in zip(plain[:2], changed[:2], strict=True)]

    assert raised(kl_penalty=0.1) == [1, 0]
    assert raised(loss={"kl": 0.1}) == [0, 1]


def test_pairs_and_their_opponents_are_methods_with_their_settings() -> None:
    squared = {"surrogate": "pairs_squared"}
    begun = differences(methods(), methods(loss=squared))
    assert begun == [
        "loss was ppo_clip version 2, is pairs_squared (trainer.loss)",
        "pairs was none, is extremes (trainer.pairs)",
        "opponents was none, is earlier_policies (trainer.pairs.opponents)",
    ]
    for changed, kind in [
        ({"name": "all"}, "pairs was extremes, is all"),
        ({"eta": 0.1}, "pairs has other values"),
        ({"reference_share": 0.5}, "pairs has other values"),
        ({"opponents": {"every": 5}}, "opponents has other values"),
        ({"opponents": {"weights": (2.0, 1.0)}}, "opponents has other values"),
    ]:
        (difference,) = differences(methods(loss=squared), methods(loss=squared, pairs=changed))
        assert difference.startswith(kind)
    assert methods(pairs={"name": "all", "eta": 0.1}) == methods(), "which no loss compares"


def test_a_step_of_a_release_that_recorded_no_methods_differs_in_none() -> None:
    assert differences((), methods()) == []


def test_functions_of_the_user_s_own_are_recorded_with_the_hashes_of_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    folder = "examples.methods"
    recorded = methods(
        advantage=f"{folder}.advantage:above_quantile",
        filters={f"{folder}.filter:too_easy": "drop"},
        loss={"surrogate": f"{folder}.surrogate:tapered", "correction": "tis"},
    )
    named = {method.name: (method.kind, method.source_sha256) for method in recorded}
    assert named.pop(f"{folder}.surrogate:tapered+tis") == ("loss", "")
    assert named.pop("mask") == ("staleness", "")
    assert named == {
        f"{folder}.{file}:{function}": (kind, file_hash(f"examples/methods/{file}.py"))
        for kind, file, function in [
            ("advantage", "advantage", "above_quantile"),
            ("filter", "filter", "too_easy"),
            ("surrogate", "surrogate", "tapered"),
        ]
    }


def test_another_file_of_a_function_is_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    present = methods(loss={"surrogate": "examples.methods.surrogate:tapered"})
    then = [
        replace(method, source_sha256="0" * 64) if method.kind == "surrogate" else method
        for method in present
    ]
    name = "examples.methods.surrogate:tapered"
    change = f"surrogate {name} has another file than then (trainer.loss.surrogate)"
    assert differences(then, present) == [change]
    assert differences(without_settings(then), without_settings(present)) == [change]


def test_other_settings_of_a_function_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name = "examples.methods.advantage:above_quantile"
    (difference,) = differences(
        methods(advantage=name), methods(advantage=name, functions={name: {"quantile": 0.9}})
    )
    assert difference.startswith("advantage has other values (trainer.advantage, ")


def file_hash(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()
