"""Tasks of a run as its settings name them: mixed files, and what is refused."""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import ValidationError

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.messages import refusing
from seamlessflow.scheduler.bootstrap import (
    check_release,
    rules_of,
    task_sets,
    training_draws,
)
from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.settings import (
    EvaluationSection,
    PacingSection,
    RunSection,
    SchedulerSection,
    SourceSection,
)
from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.file import TasksRejected
from seamlessflow.scheduler.tasks.forks import fork_line
from seamlessflow.scheduler.tasks.mixture import Drawing, Draws, Mixture
from seamlessflow.scheduler.tasks.source import TaskSource
from seamlessflow.schemas.records import GroupAdmitted, Record
from tests.builders.records import control
from tests.builders.records.forks import forked
from tests.builders.scheduler.inputs import fold, holds, scheduler_settings
from tests.builders.schemas.made_up import FIRST, SECOND, encoder

STARTED: list[Record] = [control.claimed(), control.published(0), control.joined("w"), *holds("w")]


def write(path: Path, ids: Iterable[object]) -> Path:
    path.write_text("\n".join(json.dumps({"id": task_id}) for task_id in ids))
    return path


def mixture(folder: Path, **weights: float) -> PacingSection:
    """Return sources of five tasks each."""
    sources = {
        name: SourceSection(
            tasks=write(folder / name, [f"{name}-{n}" for n in range(5)]), weight=weight
        )
        for name, weight in weights.items()
    }
    return PacingSection(sources=sources, seed=4)


def draws_of(pacing: PacingSection) -> Drawing:
    draws = training_draws(pacing)
    assert isinstance(draws, TaskSource | Mixture)
    return draws


def test_sources_are_mixed_by_weight_whatever_their_order_in_the_settings(tmp_path: Path) -> None:
    first, other = (
        draws_of(mixture(tmp_path, **weights))
        for weights in ({"math": 2.0, "code": 1.0}, {"code": 1.0, "math": 2.0})
    )
    rows = [first.draw(number) for number in range(30)]
    assert Counter(row.split for row in rows) == {"math": 20, "code": 10}
    assert rows == [other.draw(number) for number in range(30)]
    assert all(row.task_id.startswith(row.split) for row in rows)
    assert (row := first.find("code-3")) is not None and row.split == "code"


def test_one_file_is_drawn_from_as_before_there_were_sources(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks", range(5))
    draws = draws_of(PacingSection(tasks=path, shuffle=False))
    assert [draws.draw(n).task_id for n in range(6)] == ["0", "1", "2", "3", "4", "0"]
    assert draws.draw(0).split == "train"
    assert draws.rule(3).figures == {"draw": 3, "tasks": 5}
    assert training_draws(PacingSection()) is None


def test_an_id_of_two_sources_is_refused_with_both_places(tmp_path: Path) -> None:
    pacing = mixture(tmp_path, code=1, math=1)
    write(tmp_path / "math", ["math-0", "code-3"])
    with pytest.raises(TasksRejected) as caught:
        training_draws(pacing)
    assert str(caught.value) == (
        f"{tmp_path / 'math'}, line 2: {tmp_path / 'code'}, line 4 has the id 'code-3', too"
    )


def test_forks_and_sources_are_drawn_together_and_have_no_id_in_common(tmp_path: Path) -> None:
    forks = tmp_path / "forks"
    forks.write_bytes(fork_line("fork", {"id": "x"}, 2, forked()))
    both = mixture(tmp_path, code=1, math=1).model_copy(update={"forks": forks})
    rows = [draws_of(both).draw(number) for number in range(8)]
    assert Counter(row.split for row in rows) == {"train": 4, "code": 2, "math": 2}
    forks.write_bytes(fork_line("math-1", {"id": "x"}, 2, forked()))
    with pytest.raises(TasksRejected, match="math, line 2 has the id 'math-1', too"):
        training_draws(both)


def test_evaluation_sets_may_have_ids_in_common(tmp_path: Path) -> None:
    settings = scheduler_settings(
        pacing=PacingSection(),
        evaluation=EvaluationSection.model_validate(
            {
                "sets": {
                    "all": {"tasks": write(tmp_path / "all", "ab")},
                    "hard": {"tasks": write(tmp_path / "hard", "b")},
                }
            }
        ),
    )
    sets = task_sets(settings)
    assert sets.training is None
    splits = {name: [row.split for row in source.rows] for name, source in sets.evaluations.items()}
    assert splits == {"all": ["all", "all"], "hard": ["hard"]}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"sources": {"a": {"tasks": "t", "weight": 0}}}, "greater than 0"),
        ({"sources": {"a": {"tasks": "t", "weight": -1}}}, "greater than 0"),
        ({"sources": {"a": {"tasks": "t", "weight": "inf"}}}, "finite number"),
        ({"sources": {"a": {"weight": 1}}}, "Field required"),
        ({"sources": {"a/b": {"tasks": "t"}}}, "should match pattern"),
        ({"sources": {"a": {"tasks": "t"}}, "tasks": "t"}, "exclude each other"),
        ({"sources": {"train": {"tasks": "t"}}, "forks": "f"}, "the name of pacing.forks"),
    ],
)
def test_wrong_settings_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        PacingSection.model_validate(values)


def admit(draws: Draws, state: State, pacing_section: PacingSection) -> list[GroupAdmitted]:
    run = RunSection(groups_per_step=2, lag=1, steps=100)
    settings = scheduler_settings(run, pacing=pacing_section)
    return pacing.admissions(state, settings, draws, 0)


def test_groups_name_their_source_and_how_they_were_drawn(tmp_path: Path) -> None:
    section = mixture(tmp_path, code=1, math=1)
    groups = admit(draws_of(section), fold(*STARTED), section)
    assert [group.split for group in groups] == ["math", "code", "math", "code"]
    assert [group.sampler_figures["draw"] for group in groups] == [0, 1, 2, 3]
    assert [group.sampler_figures["source_draw"] for group in groups] == [0, 0, 1, 1]


def test_a_scheduler_that_starts_again_draws_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    """Its state is the fold of `control`, or of a snapshot and what follows; no draw is lost."""
    section = mixture(tmp_path, code=1, math=2)
    state, admitted = fold(*STARTED), list[GroupAdmitted]()
    for step in range(1, 16):
        # Each time with the tasks read again, and a state that was stored or folded from the log.
        draws = draws_of(section)
        groups = admit(draws, state, section)
        admitted += groups
        more = [*groups, *(control.dropped(group.group_id, reason="filtered") for group in groups)]
        for record in (*more, control.completed(step)):
            state = control_state.apply(state, record)
        if step % 2:
            restored = control_state.from_json(control_state.to_json(state))
            assert restored == state
            state = restored
    names = [group.task_id for group in admitted]
    draws = draws_of(section)
    assert names == [draws.draw(number).task_id for number in range(len(names))]
    passes = [names[start : start + 15] for start in range(0, 45, 15)]
    for members in passes:  # ten draws of math and five of code
        assert Counter(members) == {f"math-{n}": 2 for n in range(5)} | {
            f"code-{n}": 1 for n in range(5)
        }


def test_a_task_that_is_tried_again_keeps_its_source_and_costs_no_draw(tmp_path: Path) -> None:
    section = mixture(tmp_path, code=1, math=1)
    draws = draws_of(section)
    first = admit(draws, fold(*STARTED), section)
    dropped = control.dropped(first[1].group_id, reason="failed")
    state = fold(*STARTED, *first, dropped)
    (again,) = admit(draws, state, section)
    assert (again.task_id, again.split, again.sampler) == (first[1].task_id, "code", "again")
    assert state.first.ledger.drawn == len(first)


def test_a_library_that_a_strategy_waits_for_at_its_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Stands for any library of the list, none of which may be imported here.
    Path("tensorflow.py").write_text("")
    text = "import tensorflow\ndef roles(snapshot):\n    return []\n"
    Path("heavy_strategy_of_this_test.py").write_text(text)
    policy = SchedulerSection(policy="heavy_strategy_of_this_test:roles")
    write(Path("tasks.jsonl"), "ab")
    rules_of(scheduler_settings(scheduler=policy))
    del sys.modules["tensorflow"]  # others look whether it is there
    named = "scheduler.policy: heavy_strategy_of_this_test:roles imports tensorflow, and the sched"
    assert caplog.text.count(named) == 1


@pytest.mark.parametrize(
    "pacing",
    [
        PacingSection(tasks=Path("tasks.jsonl"), sampler=SamplerSection(name="vade")),
        PacingSection(tasks=Path("tasks.jsonl"), terms=TermsSection(name="by_success")),
        PacingSection(tasks=Path("tasks.jsonl"), forks_live=0.25),
    ],
    ids=["sampler", "terms", "forks"],
)
def test_a_rule_of_statistics_is_refused_while_the_written_release_lacks_them(
    pacing: PacingSection,
) -> None:
    settings = scheduler_settings(pacing=pacing)
    with pytest.raises(SettingsRejected, match=r"PACING__\w+: it needs .* release 0\.0\.1 "):
        check_release(settings, refusing(FIRST, encoder(FIRST)))
    check_release(settings, refusing(SECOND, encoder(SECOND)))


def test_tasks_in_their_order_are_drawn_under_any_pin() -> None:
    check_release(scheduler_settings(), refusing(FIRST, encoder(FIRST)))
