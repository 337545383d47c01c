"""Environments in processes: each way in which one cannot be compared is named with its call."""

from pathlib import Path

import pytest

from seamlessflow.lab.conformance.comparing import ComparedState
from seamlessflow.lab.conformance.environment_process import EnvironmentFailed, EnvironmentProcess

LIMIT_S = 30.0
SOME_S = 2.0
SHORT_S = 0.3
HEAD = "import os, sys, time\n"
WHOLE = """
class Made:
    def reset(self, seed):
        self.seed = seed
        {reset}
        return [seed]
    def actions(self):
        return {actions}
    def step(self, action):
        {step}
        return ({observation}, {reward}, {done})
"""
RIGHT = {
    "reset": "pass",
    "step": "pass",
    "actions": "('a', 'b')",
    "observation": "(self.seed, action)",
    "reward": "1",
    "done": "action == 'b'",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here: Path, **changes: str) -> str:
    (here / "made.py").write_text(HEAD + WHOLE.format(**{**RIGHT, **changes}))
    return "made:Made"


def played(name: str, limit_s: float = LIMIT_S) -> list[ComparedState]:
    with EnvironmentProcess(name, limit_s) as process:
        return [process.reset(7), process.step("a"), process.step("b")]


def test_states_are_as_the_environment_returns_them(here: Path) -> None:
    assert played(written(here)) == [
        ComparedState([7], ["a", "b"]),
        ComparedState([7, "a"], ["a", "b"], 1.0, False),
        ComparedState([7, "b"], [], 1.0, True),
    ]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"reset": "1 / 0"}, "seed 7, reset: {here}/made.py, line 6: ZeroDivisionError: division"),
        ({"step": "sys.exit(3)"}, 'seed 7, step 1, action "a": {here}/made.py, line 11: SystemExi'),
        ({"step": "os._exit(3)"}, 'step 1, action "a": it ended its process with status 3'),
        ({"observation": "{1}"}, "observation: Object of type set is not JSON serializable, so it"),
        ({"observation": "float('nan')"}, "observation: Out of range float values are not JSON"),
        ({"reward": "'much'"}, "step: it returned 'much', not a number as reward"),
        ({"reward": "float('inf')"}, "step: it returned inf, not a finite reward"),
        ({"done": "'no'"}, "step: it returned 'no', not True or False for done"),
        ({"step": "return 1"}, "step: it returned 1, not (observation, reward, done)"),
        ({"actions": "[]"}, "seed 7, reset: actions: it returned none, though the episode is not"),
        ({"actions": "'ab'"}, "actions: it returned 'ab', not a list of possible actions"),
    ],
)
def test_an_environment_that_fails_is_named_with_the_call(
    here: Path, changes: dict[str, str], error: str
) -> None:
    name = written(here, **changes)
    with pytest.raises(EnvironmentFailed) as raised:
        played(name)
    assert str(raised.value).startswith(f"{name}, seed 7, ")
    assert error.format(here=here) in str(raised.value)


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("Made = 3\n", "made:Made: cannot be called: module made has no function Made"),
        ("def Made():\n    return 3\n", "it returned int, which has no method reset, step, actio"),
        ("import nothing_such\n", "cannot be imported: {here}/made.py, line 1: No module named"),
        ("def Made(size):\n    pass\n", "TypeError: Made() missing 1 required positional argument"),
        ("import os\nos._exit(4)\n", "made:Made: it ended its process with status 4"),
        ("raise SystemExit('no')\n", "cannot be imported: {here}/made.py, line 1: SystemExit: no"),
    ],
)
def test_a_module_that_has_no_environment_is_named(here: Path, module: str, error: str) -> None:
    (here / "made.py").write_text(module)
    with pytest.raises(EnvironmentFailed) as raised:
        played("made:Made")
    assert error.format(here=here) in str(raised.value)


def test_an_environment_that_hangs_is_ended_at_its_deadline(here: Path) -> None:
    name = written(here, step="time.sleep(1000)")
    error = r'made:Made, seed 7, step 1, action "a": no answer within 2 s, so its process was'
    with EnvironmentProcess(name, SOME_S) as process:
        process.reset(7)
        with pytest.raises(EnvironmentFailed, match=error):
            process.step("a")


def test_a_module_whose_import_hangs_is_ended_at_its_deadline(here: Path) -> None:
    (here / "made.py").write_text("import time\ntime.sleep(1000)\n")
    error = r"its import: no answer within 0\.3 s"
    with (
        pytest.raises(EnvironmentFailed, match=error),
        EnvironmentProcess("made:Made", LIMIT_S, start_limit_s=SHORT_S),
    ):
        pass


def test_what_an_environment_prints_and_reads_does_not_disturb_it(here: Path) -> None:
    printing = "print('{}'); os.write(1, b'more\\n'); print('hm', file=sys.stderr)"
    name = written(here, reset=printing, step="assert sys.stdin.read() == ''")
    with EnvironmentProcess(name, LIMIT_S) as process:
        assert process.reset(7).observation == [7]
        assert process.step("b").done
        assert sorted(process.printed.split()) == ["hm", "more", "{}"]
