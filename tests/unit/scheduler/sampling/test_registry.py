"""Samplers and terms of the user's own: an error costs one choice, a hundred in a row the run."""

import hashlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.infra.user_functions import FunctionUnusable, user_function
from seamlessflow.scheduler.sampling.ask import Ask, Candidate, TaskChoice
from seamlessflow.scheduler.sampling.draws import FELL_BACK, Drawn, TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.registry import (
    MOST_FAILURES,
    SamplerFailed,
    UsedMethod,
    used_sampler,
    used_terms,
)
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from tests.builders.scheduler.sampling import SampledRun, source_of

SAMPLER = "samplers_of_this_test"
CODE = """
from dataclasses import replace
from seamlessflow.scheduler.sampling.ask import TaskChoice

def last(ask, *, figure=1.0):
    free = [place for place in range(len(ask.tasks)) if ask.is_free(place)]
    return [TaskChoice(place=p, samples=3, figures={"f": figure}) for p in free[-ask.count:]]

def fewer(candidate, choice, source, *, most=9):
    return replace(choice, samples=min(choice.samples - 1, most), turn_limit=5)

def rate(candidate, *, every=0.5):
    return every

def broken(*asked):
    raise KeyError("level")
"""
Answer = Callable[[Ask], Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the file of the user's functions, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"{SAMPLER}.py"
    path.write_text(CODE)
    yield path
    sys.modules.pop(SAMPLER, None)
    user_function.cache_clear()


def sampler_of(answer: Answer, name: str = f"{SAMPLER}:f") -> UsedMethod:
    return UsedMethod("pacing.sampler", name, answer, sha256="0" * 64)


def run_with(sampler: UsedMethod | None = None, terms: UsedMethod | None = None) -> SampledRun:
    """Return a run over nine tasks that draws by these functions."""
    source = source_of(9)
    target = SamplerSection.model_validate({"name": "target"})
    sampling = sampling_of(target, TermsSection(), {}, source, (0, 8, 20))
    return SampledRun(source, replace(sampling, sampler=sampler, terms=terms))


def fallen_back(drawn: Sequence[Drawn]) -> list[bool]:
    return [FELL_BACK in each.rule.figures for each in drawn]


def places(*chosen: object) -> Answer:
    return lambda ask: [TaskChoice(place=place) for place in chosen]  # type: ignore[arg-type]


def with_fields(**fields: Any) -> Answer:
    return lambda ask: [TaskChoice(place=0, **fields)]


def raises(error: BaseException) -> Answer:
    def answer(ask: Ask) -> Any:
        raise error

    return answer


BAD: list[tuple[Answer, str]] = [
    (places(9), "returned place 9, not one below 9"),
    (places(-1), "returned place -1, not one below 9"),
    (places("a"), "returned place 'a', not one below 9"),
    (places(1, 1), "returned place 1 twice, not different tasks"),
    (places(0, 1, 2), "returned 3 choices, not at most 2"),
    (lambda ask: None, "returned None, not a list of TaskChoice"),
    (lambda ask: [3], r"returned \[3\], not a list of TaskChoice"),
    (with_fields(figures={"f": float("nan")}), "figure f nan, not a finite number"),
    (with_fields(figures={"f": float("inf")}), "figure f inf, not a finite number"),
    (with_fields(figures={"f": 10**400}), "OverflowError"),
    (with_fields(figures={"f": "1"}), "figure f '1', not a finite number"),
    (with_fields(figures={3: 1.0}), "the name 3, not a text"),
    (with_fields(arms=(3,)), "the name 3, not a text"),
    (with_fields(arms=None), "TypeError"),
    (with_fields(samples=0), "samples 0, not a whole number, 1 or more"),
    (with_fields(samples=2.0), "samples 2.0, not a whole number"),
    (with_fields(turn_limit=-1), "turn_limit -1, not a whole number, 0 or more"),
    (with_fields(turn_limit=2**31), "turn_limit 2147483648, not a whole number"),
    (raises(KeyError("level")), "KeyError: 'level'"),
    (raises(SystemExit(3)), "SystemExit: 3"),
]


@pytest.mark.parametrize(("answer", "reason"), BAD)
def test_a_bad_answer_costs_a_choice_which_is_drawn_in_shuffled_order(
    answer: Answer, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_with(sampler_of(answer))
    with caplog.at_level(logging.WARNING):
        drawn = run.admit(2)
    assert fallen_back(drawn) == [True, True]
    assert [each.row.task_id for each in drawn] == [
        run.draws.draw(number).task_id  # type: ignore[union-attr]
        for number in range(2)
    ]
    (record,) = caplog.records
    assert record.message.startswith(f"pacing.sampler: {SAMPLER}:f failed, so this choice goes on")
    assert "(1 in a row; 100 end the run)" in record.message
    assert re.search(reason, record.message)


def test_a_task_that_is_under_way_is_refused() -> None:
    run = run_with(sampler_of(places(3)))
    assert run.names(1) == ["train-3"]
    assert fallen_back(run.admit(1)) == [True]


def test_no_choice_is_no_failure() -> None:
    sampler = sampler_of(lambda ask: [])
    run = run_with(sampler)
    assert fallen_back(run.admit(3)) == [True] * 3
    assert sampler.failures == 0


def test_a_function_that_hangs_costs_each_choice_until_it_returns() -> None:
    goes_on = threading.Event()
    asked: list[int] = []

    def answer(ask: Ask) -> list[TaskChoice]:
        asked.append(ask.draw)
        assert goes_on.wait(30)
        return [TaskChoice(place=ask.candidates[-1].place)]

    sampler = replace(sampler_of(answer), limit_s=0.01)
    run = run_with(sampler)
    assert [fallen_back(run.admit(1)) for _ in range(3)] == [[True]] * 3
    assert (asked, sampler.failures) == ([0], 3)
    goes_on.set()
    sampler.limit_s = 30
    for thread in threading.enumerate():
        if thread.name == "call with a deadline":
            thread.join(30)
    assert fallen_back(run.admit(1)) == [False]
    assert (asked, sampler.failures) == ([0, 3], 0)


@pytest.mark.parametrize("failing", [raises(ValueError("no")), places(99)])
def test_a_hundred_failures_in_a_row_end_the_run(failing: Answer) -> None:
    sampler = sampler_of(failing)
    run = run_with(sampler)
    for _ in range(MOST_FAILURES - 1):
        run.admit(1)
    with pytest.raises(SamplerFailed, match=f"{SAMPLER}:f failed 100 times in a row") as caught:
        run.admit(1)
    assert caught.value.lasting
    assert (caught.value.setting, caught.value.name) == ("pacing.sampler", f"{SAMPLER}:f")


def test_failures_with_a_choice_between_them_end_nothing() -> None:
    asked = 0

    def answer(ask: Ask) -> list[TaskChoice]:
        nonlocal asked
        asked += 1
        if asked % 50:
            raise ValueError("no")
        return []

    run = run_with(sampler_of(answer))
    for _ in range(3 * MOST_FAILURES):
        run.admit(1)
    assert asked == 3 * MOST_FAILURES


def test_an_error_of_a_method_of_the_release_is_not_hidden() -> None:
    run = run_with(UsedMethod("pacing.sampler", "vade", raises(ZeroDivisionError())))
    with pytest.raises(ZeroDivisionError):
        run.admit(1)


@pytest.mark.parametrize("returned", [None, TaskChoice(place=0, samples=0), 3])
def test_terms_that_fail_leave_the_choice_as_it_is(
    returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    terms = UsedMethod("pacing.terms", f"{SAMPLER}:f", lambda *asked: returned, sha256="0" * 64)
    (drawn,) = run_with(terms=terms).admit(1)
    assert (drawn.samples, drawn.turn_limit, drawn.rule.name) == (None, None, "shuffled")
    assert "pacing.terms" in caplog.text


def test_a_sampler_cannot_change_the_number_of_the_draw_or_its_stage() -> None:
    figures = {"draw": 7.0, "tasks": 1.0, "mine": 2.0}
    (drawn,) = run_with(sampler_of(with_fields(figures=figures))).admit(1)
    assert drawn.rule.figures == {"draw": 0, "tasks": 9, "mine": 2.0}


def sampling(functions: dict[str, dict[str, Any]] | None = None) -> TaskSampling:
    sampler = SamplerSection.model_validate({"name": f"{SAMPLER}:last"})
    terms = TermsSection.model_validate({"name": f"{SAMPLER}:fewer"})
    return sampling_of(sampler, terms, functions or {}, source_of(9), (0, 8, 20))


def test_a_function_is_called_with_its_settings_and_recorded_with_the_hash_of_its_file(
    file: Path,
) -> None:
    functions: dict[str, dict[str, Any]] = {
        f"{SAMPLER}:last": {"figure": 4.0},
        f"{SAMPLER}:fewer": {"most": 2},
    }
    run = SampledRun(source_of(9), sampling(functions))
    drawn = run.admit(2)
    assert [each.row.task_id for each in drawn] == ["train-7", "train-8"]
    for each in drawn:
        assert (each.rule.name, each.rule.figures["f"]) == (f"{SAMPLER}:last", 4.0)
        assert each.rule.source_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert (each.samples, each.turn_limit) == (2, 5)
        assert (each.terms, each.terms_sha256) == (f"{SAMPLER}:fewer", each.rule.source_sha256)


def predicting(predict: str, **settings: Any) -> SampledRun:
    section = SamplerSection.model_validate({"name": "trace", "predict": predict})
    return run_with(used_sampler(section, {predict: settings}))


def test_a_prediction_is_called_with_its_settings_and_recorded_as_a_sampler_is(file: Path) -> None:
    (drawn,) = predicting(f"{SAMPLER}:rate", every=0.25).admit(1)
    assert (drawn.rule.name, drawn.rule.figures["rate"]) == ("trace", 0.25)
    assert drawn.rule.source_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("rate", [1.5, float("nan"), "much", None])
def test_a_prediction_that_fails_costs_a_choice(
    rate: object, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = predicting(f"{SAMPLER}:rate", every=rate)
    assert fallen_back(run.admit(2)) == [True, True]
    assert "pacing.sampler: trace failed" in caplog.text
    assert fallen_back(predicting(f"{SAMPLER}:broken").admit(1)) == [True]


def test_the_place_of_an_error_is_logged(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    sampler = used_sampler(SamplerSection.model_validate({"name": f"{SAMPLER}:broken"}), {})
    run_with(sampler).admit(1)
    line = CODE.splitlines().index('    raise KeyError("level")') + 1
    assert f"{file}, line {line}: KeyError: 'level'" in caplog.text


def test_a_library_that_a_function_waits_for_at_its_import_is_named_with_the_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Stands for any library of the list, none of which may be imported here.
    Path("jax.py").write_text("")
    Path("heavy_of_this_test.py").write_text("import jax\ndef f(ask):\n    return []\n")
    used_sampler(SamplerSection.model_validate({"name": "heavy_of_this_test:f"}), {})
    del sys.modules["jax"]  # others look whether it is there
    pattern = r"pacing\.sampler: heavy_of_this_test:f imports jax, .* waited \d+\.\d s for it"
    (record,) = caplog.records
    assert re.fullmatch(pattern, record.message)


def test_a_function_that_is_not_there_is_refused_at_the_start(file: Path) -> None:
    for name in (f"{SAMPLER}:absent", "absent_of_this_test:f"):
        with pytest.raises(FunctionUnusable, match="cannot be called"):
            used_sampler(SamplerSection.model_validate({"name": name}), {})
        with pytest.raises(FunctionUnusable, match="cannot be called"):
            used_terms(TermsSection.model_validate({"name": name}), {})


def test_terms_see_a_choice_whose_samples_and_turns_are_never_none() -> None:
    seen: list[tuple[Candidate, TaskChoice]] = []

    def terms(candidate: Candidate, choice: TaskChoice, source: object) -> TaskChoice:
        seen.append((candidate, choice))
        return choice

    method = UsedMethod("pacing.terms", f"{SAMPLER}:f", terms, sha256="0" * 64)
    run_with(sampler_of(places(4)), method).admit(1)
    run_with(sampler_of(with_fields(samples=3, turn_limit=0)), method).admit(1)
    sizes = [(choice.samples, choice.turn_limit) for _, choice in seen]
    assert sizes == [(8, 20), (3, 0)]
    assert [candidate.task_id for candidate, _ in seen] == ["train-4", "train-0"]
