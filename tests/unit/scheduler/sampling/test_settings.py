"""Settings of the choice of tasks: what a name does not read is refused, with its reader."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.settings import PacingSection, SourceSection

TASKS = Path("tasks.jsonl")


@pytest.mark.parametrize(
    ("setting", "value", "reader"),
    [
        ("rate", 0.4, "target"),
        ("return_after", 2, "srpo"),
        ("most", 12, "trace"),
        ("predict", "module:function", "trace"),
    ],
)
@pytest.mark.parametrize("name", [None, "vade", "greso", "other:function"])
def test_a_sampler_s_setting_that_its_name_does_not_read_is_refused_with_the_reader(
    setting: str, value: object, reader: str, name: str | None
) -> None:
    with pytest.raises(ValidationError, match=rf"\b{setting}\b") as caught:
        SamplerSection.model_validate({"name": name, setting: value})
    assert reader in str(caught.value)
    chosen = SamplerSection.model_validate({"name": reader, setting: value})
    assert chosen.arguments[setting] == value


@pytest.mark.parametrize(("setting", "value"), [("least", 3), ("exempt", 0.5)])
@pytest.mark.parametrize("name", [None, "other:function"])
def test_a_setting_of_terms_that_the_name_does_not_read_is_refused_with_the_reader(
    setting: str, value: object, name: str | None
) -> None:
    with pytest.raises(ValidationError, match="by_success"):
        TermsSection.model_validate({"name": name, setting: value})
    section = TermsSection.model_validate({"name": "by_success", setting: value})
    assert section.arguments == {"least": 2, "exempt": 0.1, setting: value}


def test_settings_of_the_statistics_hold_for_every_sampler_and_for_none() -> None:
    statistics = {"by": "book", "candidates": 9, "memory": 0.5, "own_memory": 0.5, "passes": 0.5}
    for name in (None, "vade", "target", "greso", "srpo", "trace", "module:function"):
        section = SamplerSection.model_validate({"name": name, **statistics})
        assert section.model_dump(include=set(statistics)) == statistics


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "other"},
        {"name": "a:b:c"},
        {"candidates": 0},
        {"memory": 0},
        {"memory": 1.1},
        {"own_memory": 0},
        {"passes": float("nan")},
        {"passes": float("inf")},
        {"by": ""},
        {"name": "target", "rate": 0},
        {"name": "target", "rate": 1},
        {"name": "srpo", "return_after": 0},
        {"name": "trace", "most": 1},
        {"name": "trace", "predict": "predictor"},
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SamplerSection.model_validate(wrong)


@pytest.mark.parametrize("wrong", [{"least": 0}, {"exempt": 1.1}, {"exempt": -0.1}])
def test_a_wrong_value_of_terms_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TermsSection.model_validate({"name": "by_success", **wrong})


def test_settings_of_a_function_that_is_not_used_are_refused() -> None:
    used: dict[str, Any] = {"tasks": TASKS, "functions": {"a:f": {"x": 1}}}
    with pytest.raises(ValidationError, match="a:f"):
        PacingSection.model_validate({**used, "sampler": {"name": "vade"}})
    for section in ("sampler", "terms"):
        chosen = PacingSection.model_validate({**used, section: {"name": "a:f"}})
        assert chosen.functions == {"a:f": {"x": 1}}


@pytest.mark.parametrize("weight", [[(3, 1), (1, 2)], [(1, 1), (1, 2)], [(-1, 1)], [], [(0, -1)]])
def test_weights_without_ascending_steps_are_refused(weight: list[tuple[int, float]]) -> None:
    with pytest.raises(ValidationError):
        SourceSection.model_validate({"tasks": TASKS, "weight": weight})


def test_a_source_has_its_weight_from_its_step_on_and_none_before() -> None:
    sources = {
        "a": {"tasks": TASKS, "weight": 2},
        "b": {"tasks": TASKS, "weight": [(3, 1), (5, 0)]},
    }
    pacing = PacingSection.model_validate({"sources": sources})
    assert list(pacing.stages) == [0, 3, 5]
    steps = {0: [2, 0], 2: [2, 0], 3: [2, 1], 4: [2, 1], 5: [2, 0], 99: [2, 0]}
    assert {step: pacing.weights_at(step) for step in steps} == steps


def test_a_run_without_a_source_at_its_beginning_is_refused() -> None:
    late = {"a": {"tasks": TASKS, "weight": [(1, 1)]}}
    with pytest.raises(ValidationError, match="no source has a weight at step 0"):
        PacingSection.model_validate({"sources": late})
