"""Faults of `seamlessflow share` before anything is read or written, by the setting."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.recorded.share.keys import SigningKey
from seamlessflow.runs.sharing import before_publishing, before_taking
from tests.builders.run_files import changed, faults, run_values
from tests.builders.shared_groups import OURS, THEIRS

JUDGE = (
    "def judge(task, text, *, right=1.0):\n    return right\n\ndef blind(task):\n    return 1.0\n"
)
TAKEN: dict[str, Any] = {"judge": "share_judge:judge", "signers": {"them": THEIRS.public}}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "share_judge.py").write_text(JUDGE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def taking(run: Path, **share: Any) -> list[str]:
    return list(faults(changed(run_values(run), "share", **{**TAKEN, **share}), before_taking))


def publishing(run: Path, **share: Any) -> list[str]:
    return list(faults(changed(run_values(run), "share", **share), before_publishing))


def test_what_has_keys_and_a_judge_is_right(run: Path) -> None:
    SigningKey.make(run / "key.pem")
    settings = {"share_judge:judge": {"right": 2.0}}
    assert taking(run) == taking(run, sign_with="key.pem", functions=settings) == []
    assert publishing(run, sign_with="key.pem") == []


@pytest.mark.parametrize(
    ("share", "setting", "text"),
    [
        ({"judge": None}, "share.judge", "nothing is taken without a judge"),
        ({"judge": "share_judge:nothing"}, "share.judge", "has no function nothing"),
        ({"judge": "share_judge:blind"}, "share.judge", "blind"),
        ({"judge": "judge"}, "share.judge", "module:function"),
        ({"functions": {"share_judge:judge": {"wrong": 1}}}, "share.judge", "wrong"),
        ({"functions": {"other:judge": {}}}, "share", "other:judge"),
        ({"signers": {}}, "share.signers", "no signer is named"),
        ({"signers": {"them": "00"}}, "share.signers.them", "pattern"),
        ({"signers": {"a": OURS.public, "b": OURS.public}}, "share", "two names"),
        ({"sign_with": "nowhere.pem"}, "share.sign_with", "nowhere.pem"),
    ],
)
def test_what_cannot_take_is_a_fault(
    run: Path, share: dict[str, Any], setting: str, text: str
) -> None:
    (line,) = taking(run, **share)
    assert line.startswith(setting)
    assert text in line


def test_a_judge_gives_the_reward_that_the_trainer_weighs(run: Path) -> None:
    values = changed(run_values(run), "share", **TAKEN)
    (line,) = faults(changed(values, "trainer", rewards={"correct": 1.0}), before_taking)
    assert line.startswith("share.judge")
    assert "trainer.rewards weighs correct" in line


def test_nothing_is_published_without_a_key_of_the_owner_alone(run: Path) -> None:
    assert publishing(run)[0].startswith("share.sign_with: no key is named")
    SigningKey.make(run / "key.pem")
    (run / "key.pem").chmod(0o644)
    (line,) = publishing(run, sign_with="key.pem")
    assert "chmod 600" in line
