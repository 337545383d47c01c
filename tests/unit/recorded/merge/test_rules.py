"""Rewards of recorded sessions from a file."""

from pathlib import Path

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.merge.rules import judgements
from tests.builders.line_forms import LINE_FORMS, Written


@pytest.mark.parametrize("written", LINE_FORMS.values(), ids=LINE_FORMS)
def test_judgements_are_the_same_however_their_lines_were_written(
    written: Written, tmp_path: Path
) -> None:
    path = tmp_path / "rewards.jsonl"
    path.write_bytes(
        written([b'{"session_id":"s.0.0","value":1}', b'{"session_id":"s","value":0}'])
    )
    assert {name: reward.value for name, reward in judgements(path).items()} == {
        "s.0.0": 1.0,
        "s": 0.0,
    }


@pytest.mark.parametrize("line", [b"[]", b'{"session_id": "s"}', b'{"session_id":"s","value":NaN}'])
def test_a_line_that_is_no_judgement_is_named_by_its_number(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "rewards.jsonl"
    path.write_bytes(b"\n\n" + line)
    with pytest.raises(SettingsRejected, match="line 3 is not like"):
        judgements(path)
