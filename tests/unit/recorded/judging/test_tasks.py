"""Tasks that judges read: one for all groups whose sessions work on it."""

from seamlessflow.recorded.judging.tasks import KeptTasks
from seamlessflow.recorded.show.log import concerns
from seamlessflow.schemas.records import EpisodeRole
from tests.builders.records.tasks import task

ROLES = tuple(
    EpisodeRole(role=role, policy=role, group_id=f"run-0-{role}") for role in ("one", "two")
)
PLAYED = task(group_id="run-0-one", sample=2, attempt=1, payload=b"{}", roles=ROLES)


def test_a_task_is_kept_for_the_groups_of_all_its_roles() -> None:
    kept = KeptTasks(1_000)
    kept.add(PLAYED)
    assert kept.get("run-0-one") == kept.get("run-0-two") == b"{}"
    assert kept.get("run-0-three") is None


def test_the_oldest_groups_go_when_there_is_no_more_room() -> None:
    kept = KeptTasks(len(PLAYED.payload))
    kept.add(PLAYED)
    assert (kept.get("run-0-one"), kept.get("run-0-two")) == (None, b"{}")
    kept.add(task(group_id="run-1", payload=b"[]"))
    assert (kept.get("run-0-two"), kept.get("run-1")) == (None, b"[]")


def test_a_task_concerns_the_sessions_of_all_its_roles() -> None:
    assert concerns(PLAYED, "run-0-one.2.1") and concerns(PLAYED, "run-0-two.2.1")
    assert not concerns(PLAYED, "run-0-two.2.0")
    assert concerns(task(group_id="g"), "g.0.0")
