"""Policy of a recorded run that is trained again."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.retrain.again import initial_model, trained_policy
from seamlessflow.recorded.retrain.recorded_run import RunNotRepeatable
from seamlessflow.schemas import records as r
from tests.builders.records import control

TINY = r.LineageStarted(
    at_ms=0, policy="tiny", lineage="a", parent_lineage="", step=0, settings=b"{}"
)


def test_the_only_policy_that_was_trained_needs_no_name() -> None:
    assert trained_policy(None, [TINY]) == trained_policy("tiny", [TINY]) == "tiny"
    with pytest.raises(SettingsRejected, match="--policy: must be one of tiny"):
        trained_policy("other", [TINY])


def test_a_run_before_its_first_step_is_no_run_of_an_earlier_release() -> None:
    with pytest.raises(RunNotRepeatable, match="no training has begun"):
        trained_policy(None, [control.published(0)])
    with pytest.raises(RunNotRepeatable, match="control has no LineageStarted"):
        trained_policy(None, [control.committed(0, [], lineage="a", version=1)])


def test_a_relative_model_is_also_looked_for_beside_the_run_and_in_it(tmp_path: Path) -> None:
    out = tmp_path / "project" / "out"
    for place in (out.parent / "model", out / "made" / "model"):
        place.mkdir(parents=True)
    assert initial_model(Path("model"), out) == out.parent / "model"
    assert initial_model(Path("made/model"), out) == out / "made" / "model"
    assert initial_model(out.parent / "model", None) == out.parent / "model"
    with pytest.raises(RunNotRepeatable, match=f"looked for .*{out / 'other'}.: give the command"):
        initial_model(Path("other"), out)
    with pytest.raises(RunNotRepeatable, match="the initial model model is not there"):
        initial_model(Path("model"), None)
