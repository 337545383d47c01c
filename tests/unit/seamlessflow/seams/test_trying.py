"""Trials of a user's functions: what each seam accepts, and what it says of a function that fails.

Each test has a module of a name of its own, since a process imports a module once.
"""

import sys
from pathlib import Path

import pytest

from seamlessflow.seams.seams import SEAMS
from seamlessflow.seams.trying import fault_of
from tests.paths import ROOT

ADVANTAGE = ("trainer", "advantage")
FILTER = ("trainer", "filters")
SELECTION = ("trainer", "selection", "name")
PAIRS = ("trainer", "pairs", "name")
MASK = ("trainer", "masks")
SURROGATE = ("trainer", "loss", "surrogate")
CORRECTION = ("trainer", "loss", "correction")
AGGREGATION = ("trainer", "loss", "aggregation")
SAMPLER = ("pacing", "sampler", "name")
PREDICTION = ("pacing", "sampler", "predict")
FORK_PREDICTION = ("pacing", "forks_predict")
TERMS = ("pacing", "terms", "name")
CONTROL = ("rollout", "control", "name")
STRATEGY = ("scheduler", "policy")
MIXER = ("trainer", "replay", "name")
EXAMPLES = {
    ADVANTAGE: "examples.methods.advantage:above_quantile",
    FILTER: "examples.methods.filter:too_easy",
    SELECTION: "examples.methods.selection:contrasts",
    PAIRS: "examples.methods.pairs:shorter_passes",
    MASK: "examples.methods.mask:later_turns",
    SURROGATE: "examples.methods.surrogate:tapered",
    CORRECTION: "examples.methods.correction:flattened",
    AGGREGATION: "examples.methods.aggregation:root_of_length",
    SAMPLER: "examples.methods.sampler:half_solved",
    PREDICTION: "examples.methods.prediction:own_results_first",
    FORK_PREDICTION: "examples.methods.fork_prediction:by_progress",
    TERMS: "examples.methods.terms:more_for_unsolved",
    CONTROL: "examples.methods.control:Unlikely",
    STRATEGY: "examples.methods.strategy:keeps_some",
    MIXER: "examples.methods.mixer:sometimes",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("setting", EXAMPLES, ids=lambda setting: setting[-1])
def test_the_example_of_each_seam_can_be_used(
    setting: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert fault_of(setting, EXAMPLES[setting], {}) == ""


def test_each_seam_has_an_example_of_at_most_40_lines() -> None:
    assert {seam.setting for seam in SEAMS} == set(EXAMPLES)
    for name in EXAMPLES.values():
        file = ROOT / f"{name.partition(':')[0].replace('.', '/')}.py"
        assert len(file.read_text().splitlines()) <= 40, file


@pytest.mark.parametrize(
    ("number", "setting", "body", "fault"),
    [
        (1, ADVANTAGE, "[]", "it returned advantages of 0 sessions, not of 3"),
        (2, ADVANTAGE, "[[0.0]] * 3", "advantages of shape [1] for session 0, not [5], one for"),
        (3, ADVANTAGE, "[[float('nan')] * len(a) for a in args[0]]", "nan for session 0, not a fi"),
        (4, ADVANTAGE, "1 / 0", "own_4.py, line 10: ZeroDivisionError: division by zero"),
        (5, ADVANTAGE, "[[random.random()] * len(a) for a in args[0]]", "is not pure"),
        (27, MIXER, "[]", "it returned [], not a Plan"),
        (6, FILTER, "0.5", "it returned 0.5, not True or False"),
        (7, SURROGATE, "1.0", "it returned float, not Losses"),
        (8, SURROGATE, "args[0].nothing", "AttributeError: 'LossTokens' object has no attribute"),
        (9, CORRECTION, "args[0].old_N", "it returned Tensor, not CorrectionWeights"),
        (10, AGGREGATION, "[1.0]", "it returned weights of shape [1], not of 3 chains"),
        (11, AGGREGATION, "[float('inf')] * 3", "it returned a weight that is not finite"),
        (12, STRATEGY, "['rollout']", "it returned ['rollout'], not a list of Wanted"),
        (13, FILTER, "sys.exit(3)", "SystemExit: 3"),
        (14, SELECTION, "[True]", "it returned verdicts on 1 sessions, not on 3"),
        (16, MASK, "[[1.0]] * 3", "mask of float64 of shape [1] for session 0, not of bool of [5]"),
        (17, SAMPLER, "[1, 2]", "it returned [1, 2], not a list of TaskChoice"),
        (18, SAMPLER, "[Task(place=9)]", "it returned place 9, not one below 6"),
        (19, SAMPLER, "[Task(place=1)] * 2", "it returned place 1 twice, not different tasks"),
        (20, SAMPLER, "[Task(place=1, figures={'p': nan})]", "it returned figure p nan, not a f"),
        (21, PREDICTION, "2.0", "it returned 2.0, not a rate from 0 to 1"),
        (22, TERMS, "Task(place=0, samples=0)", "it returned samples 0, not a whole number, 1 or"),
        (23, CONTROL, "Rule(top=30)", "it returned a rule whose top is 30, not from 0 to 20"),
        (24, CONTROL, "Rule(begin=lambda turn: (1,))", "it returned the state (1,), not one that"),
        (25, CONTROL, "Rule(step=lambda state, token: None)", "it returned None, not a tuple of"),
        (26, CONTROL, "Rule(step=lambda s, t: (random.random(), None))", "is not pure"),
        (15, SELECTION, "[1, 0, 1]", "it returned 1, not True or False for each session"),
    ],
)
def test_what_a_function_does_wrong_is_said(
    here: Path, number: int, setting: tuple[str, ...], body: str, fault: str
) -> None:
    imports = (
        "import random\nimport sys\nfrom math import nan\n"
        "from seamlessflow.scheduler.sampling.ask import TaskChoice as Task\n"
        "from types import SimpleNamespace\n"
        "RULE = {'top': 0, 'begin': lambda turn: 0, 'step': lambda state, token: (0, None)}\n"
        "def Rule(**changes):\n    return SimpleNamespace(**{**RULE, **changes})\n"
    )
    text = f"{imports}def method(*args):\n    return {body}\n"
    (here / f"own_{number}.py").write_text(text)
    assert fault in fault_of(setting, f"own_{number}:method", {})


def test_a_slow_function_is_refused_with_its_seconds(here: Path) -> None:
    text = "import time\ndef method(group, rules):\n    time.sleep(1.1)\n    return True\n"
    (here / "own_slow.py").write_text(text)
    fault = fault_of(FILTER, "own_slow:method", {})
    assert fault.startswith("took 1.") and fault.endswith("s for a small input; it has 1 s")


def test_its_settings_are_keyword_arguments(here: Path) -> None:
    text = "def method(group, rules, *, above):\n    return max(group.returns) > above\n"
    (here / "own_set.py").write_text(text)
    assert fault_of(FILTER, "own_set:method", {"above": 0.5}) == ""
    assert "missing 1 required keyword-only argument" in fault_of(FILTER, "own_set:method", {})
