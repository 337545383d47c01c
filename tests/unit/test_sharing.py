"""Sharing of the tests among processes, and those that are left to the night."""

from tests.nightly import EACH_TIME, NIGHTLY, is_nightly
from tests.paths import ROOT
from tests.sharing import ALONE, cost_of, readable, unit_of


def test_a_file_is_one_unit_and_whole_runs_are_one_all_together() -> None:
    assert unit_of("tests/unit/test_docs.py::test_a[x::y]") == "tests/unit/test_docs.py"
    units = {unit_of("tests/e2e/test_forks.py::test_a"), unit_of("tests/faults/test_leader.py::b")}
    assert units == {"alone"}


def test_whole_runs_come_first_and_a_test_with_a_broker_counts_for_many() -> None:
    units = {"tests/unit/test_a.py": 20, "tests/integration/test_b.py": 2, "alone": 1}
    longest_first = sorted(units, key=lambda unit: -cost_of(unit, units[unit]))
    assert longest_first == ["alone", "tests/integration/test_b.py", "tests/unit/test_a.py"]


def test_every_place_of_the_lists_is_there() -> None:
    for folder in ALONE:
        assert (ROOT / folder).is_dir(), folder
    for place in (*NIGHTLY, *EACH_TIME):
        path, _, test = place.partition("::")
        assert (ROOT / path).exists(), place
        if test:
            assert f"def {test.partition('[')[0]}" in (ROOT / path).read_text(), place


def test_a_test_at_night_is_known_by_the_beginning_of_its_id() -> None:
    assert is_nightly("tests/faults/test_matrix.py::test_any")
    assert not is_nightly("tests/unit/test_sharing.py::test_any")


def test_a_case_that_runs_each_time_is_one_of_a_test_at_night() -> None:
    for case in EACH_TIME:
        assert case.startswith(NIGHTLY), case
        assert not is_nightly(case)


def test_output_that_is_no_text_can_be_sent() -> None:
    assert readable([("stdout", "a\udcff")]) == [("stdout", "a\\udcff")]
