import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.prefix import check_prefix


@pytest.mark.parametrize("prefix", ["again.", "run-7_", "a.b-"])
def test_a_name_with_a_mark_at_its_end_is_a_prefix(prefix: str) -> None:
    check_prefix("--to", prefix)


@pytest.mark.parametrize("prefix", ["", ".", "again", "a/b.", "../a.", "a b."])
def test_what_runs_into_the_names_of_topics_or_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsRejected, match="is no prefix, such as again"):
        check_prefix("--to", prefix)
