"""Reward workers as processes, on a real broker with a real manager, killed while they judge."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.recorded.judging.requests import JudgementKey, reward_commands
from seamlessflow.recorded.judging.verdict import Rewarded
from seamlessflow.recorded.merge.rules import judgements
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import REQUESTS, SESSIONS, TASKS, TRAJECTORIES
from tests.builders.records.tasks import task
from tests.builders.trajectories.manager_system import ManagerSystem, manager_system
from tests.integration.judging import judges
from tests.paths import ROOT
from tests.seed import seed
from tests.waiting import until

pytestmark = pytest.mark.kafka
SESSIONS_JUDGED = 24
KILLS = 8
LIMIT_S = 120
TASK_JUDGE = Path(judges.__file__)


@dataclass
class JudgedSystem:
    """A manager and reward workers with the same judges."""

    system: ManagerSystem
    directory: Path
    variables: dict[str, str]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def away(self) -> Path:
        return self.directory / "away"

    def calls(self) -> Counter[str]:
        """Return how often each judge judged each session."""
        file = self.directory / "calls"
        return Counter(file.read_text().splitlines() if file.exists() else ())

    def wait_for_calls(self, count: int) -> None:
        until(lambda: self.calls().total() >= count, f"{count} calls of judges", LIMIT_S)

    @property
    def environment(self) -> dict[str, str]:
        kafka = self.system.kafka
        return {
            **os.environ,
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
            # A killed member is replaced within seconds by this protocol alone.
            "SEAMLESSFLOW_KAFKA__GROUP_PROTOCOL": "classic",
            "SEAMLESSFLOW_KAFKA__SESSION_TIMEOUT_S": "6",
            "SEAMLESSFLOW_DATA_DIR": str(self.directory),
            "PYTHONPATH": str(ROOT),
            judges.CALLS: str(self.directory / "calls"),
            judges.AWAY: str(self.away),
            **self.variables,
        }

    def start_worker(self) -> None:
        with (self.directory / "worker.log").open("ab") as log:
            command = [sys.executable, "-m", "seamlessflow.recorded.judging"]
            self.workers.append(subprocess.Popen(command, env=self.environment, stderr=log))

    def kill_worker(self, rng: random.Random) -> None:
        worker = self.workers.pop(rng.randrange(len(self.workers)))
        worker.kill()
        worker.wait()

    def close_sessions(self, count: int, first: int = 0) -> None:
        """Issue tasks, and open and close a session for each."""
        for number in range(first, first + count):
            name = f"s-{number}"
            issued = task(
                group_id=f"{name}-group", payload=orjson.dumps({"id": name, "worth": number / 2})
            )
            self.system.send(TASKS.name, issued, key=issued.group_id)
            self.system.open_session(name)
            self.system.close(name)

    def rewards(self) -> dict[str, list[r.RewardAssigned]]:
        """Return the rewards on the log by session."""
        rewards: dict[str, list[r.RewardAssigned]] = {}
        for item in read_topic(self.system.kafka, SESSIONS, Skipped()):
            if isinstance(item.record, r.RewardAssigned):
                rewards.setdefault(item.record.session_id, []).append(item.record)
        return rewards

    def trajectories(self) -> dict[str, r.Trajectory]:
        items = read_topic(self.system.kafka, TRAJECTORIES, Skipped())
        made = [item.record for item in items if isinstance(item.record, r.Trajectory)]
        assert len({record.session_id for record in made}) == len(made)
        return {record.session_id: record for record in made}

    def refusals(self) -> dict[str, str]:
        """Return the reason of the refused command of each session."""
        items = read_topic(self.system.kafka, SESSIONS, Skipped())
        refused = (item.record for item in items if isinstance(item.record, r.CommandRefused))
        return {record.session_id: record.reason for record in refused}

    def wait_for_trajectories(self, count: int) -> dict[str, r.Trajectory]:
        until(lambda: len(self.trajectories()) >= count, f"{count} trajectories", LIMIT_S)
        return self.trajectories()


def rewards_section(wait_s: float, **names: Mapping[str, object]) -> dict[str, str]:
    module = judges.__name__
    section = {name: {"callable": f"{module}:{name}", **more} for name, more in names.items()}
    return {
        "SEAMLESSFLOW_REWARDS__JUDGES": json.dumps(section),
        "SEAMLESSFLOW_REWARDS__WAIT_S": str(wait_s),
    }


@pytest.fixture
def judged(
    broker: KafkaSettings, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[JudgedSystem]:
    with manager_system(broker, tmp_path) as system:
        made = JudgedSystem(system, tmp_path, request.param)
        system.start_manager("0", None, **made.variables)
        made.start_worker()
        yield made
        for worker in made.workers:
            worker.terminate()
        statuses = [worker.wait(LIMIT_S) for worker in made.workers]
        assert set(statuses) <= {0}, (tmp_path / "worker.log").read_text()


def indirect(wait_s: float, **names: Mapping[str, object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("judged", [rewards_section(wait_s, **names)], indirect=True)


@indirect(300, level={"concurrency": 2}, task={})
def test_each_closed_session_has_each_judges_reward_once_however_often_workers_are_killed(
    judged: JudgedSystem,
) -> None:
    rng = random.Random(seed)
    closed = 0
    for _ in range(KILLS):
        share = SESSIONS_JUDGED // KILLS
        calls = judged.calls().total()
        judged.start_worker()
        judged.close_sessions(share, closed)
        closed += share
        judged.wait_for_calls(calls + 1)
        judged.kill_worker(rng)

    made_of = judged.wait_for_trajectories(closed)

    rewards = judged.rewards()
    for number in range(closed):
        name = f"s-{number}"
        values = sorted((event.reward.name, event.reward.value) for event in rewards[name])
        assert values == [("level", float(number)), ("task", number / 2)], f"seed {seed}"
        assert (made_of[name].status, made_of[name].cause) == ("complete", "policy")
    assert audit(judged.system.kafka).clean


@indirect(300, level={})
def test_a_recording_is_judged_anew_and_stays_as_it_is(judged: JudgedSystem) -> None:
    judged.close_sessions(3)
    before = judged.wait_for_trajectories(3)
    rewards = judged.directory / "rewards.jsonl"

    def command(*options: str) -> subprocess.CompletedProcess[str]:
        judge = [sys.executable, "-m", "seamlessflow", "judge", "--judge", f"{TASK_JUDGE}:task"]
        options = ("--name", "level", "--to", str(rewards), "--compare", "--json", *options)
        return subprocess.run(
            [*judge, *options], env=judged.environment, capture_output=True, text=True
        )

    made = command("--most-unrewarded", "0")

    assert made.returncode == 0, made.stderr
    outcome = orjson.loads(made.stdout)
    # This log has no run, so no weights, by which a session without `reward` does not count.
    assert (outcome["judged"], outcome["left_out"], outcome["exceeded"]) == (3, 3, [])
    lines = [orjson.loads(line) for line in rewards.read_text().splitlines()]
    assert {line["session_id"]: (line["name"], line["value"]) for line in lines} == {
        f"s-{number}": ("level", number / 2) for number in range(3)
    }
    assert set(judgements(rewards)) == before.keys(), "replay merge --rewards takes the file"
    assert judged.trajectories() == before
    refused = command("--most-unrewarded", "0", "--judge", f"{TASK_JUDGE}:prose", "--retries", "0")
    assert refused.returncode == ExitStatus.LASTING, refused.stderr


@indirect(300, absent={"retries": 0})
def test_an_outage_is_waited_out(judged: JudgedSystem) -> None:
    judged.away.touch()
    judged.close_sessions(2)
    until(lambda: min(judged.calls().values(), default=0) > 2, "tries", LIMIT_S)
    assert judged.rewards() == {}
    judged.away.unlink()

    made = judged.wait_for_trajectories(2)

    assert {record.cause for record in made.values()} == {"policy"}


@indirect(300, prose={"retries": 1}, level={})
def test_a_judge_that_gives_no_reward_ends_the_session_for_its_own_reason(
    judged: JudgedSystem,
) -> None:
    judged.close_sessions(1)

    (made,) = judged.wait_for_trajectories(1).values()

    assert (made.status, made.cause) == ("unrewarded", "judge")
    assert "judge prose: a reward is" in made.reason or "prose: an agent returns" in made.reason
    assert judged.calls()["prose s-0"] == 2


@indirect(2, absent={})
def test_behind_its_deadline_a_session_ends_and_a_late_reward_stays_on_the_log(
    judged: JudgedSystem,
) -> None:
    judged.away.touch()
    judged.close_sessions(1)
    (made,) = judged.wait_for_trajectories(1).values()
    assert (made.cause, made.rewards) == ("judge", ())

    keys = (JudgementKey(session, "absent") for session in ("s-0", "erased"))
    late, foreign = (reward_commands(key, Rewarded(1.0), made.finalized_at_ms, 0) for key in keys)
    for command in (*late, *foreign):
        judged.system.send(REQUESTS.name, command, key=command.session_id)

    until(lambda: "erased" in judged.refusals(), "a refusal", LIMIT_S)
    assert judged.refusals()["erased"] == "unknown_session"
    kept = [
        item.record
        for item in read_topic(judged.system.kafka, REQUESTS, Skipped())
        if isinstance(item.record, r.AssignReward) and item.record.reward.value == 1.0
    ]
    assert late[0] in kept
    assert judged.trajectories() == {"s-0": made}


@indirect(2, slow={"timeout_s": LIMIT_S})
def test_a_later_merge_gives_the_rewards_that_came_behind_the_deadline(
    judged: JudgedSystem,
) -> None:
    judged.away.touch()
    judged.close_sessions(2)
    before = judged.wait_for_trajectories(2)
    assert {made.cause for made in before.values()} == {"judge"}
    judged.away.unlink()
    until(lambda: len(judged.refusals()) == 2, "late rewards", LIMIT_S)
    assert set(judged.refusals().values()) == {"session_closed"}

    prefix = f"{judged.system.kafka.topic_prefix}late."
    command = [sys.executable, "-m", "seamlessflow", "replay", "merge", "--late-rewards"]
    merged = subprocess.run(
        [*command, "--to", prefix], env=judged.environment, capture_output=True, text=True
    )

    assert merged.returncode == 0, merged.stderr
    assert "2 sessions got rewards of judges that came late" in merged.stdout
    target = judged.system.kafka.model_copy(update={"topic_prefix": prefix})
    items = read_topic(target, TRAJECTORIES, Skipped())
    made = [item.record for item in items if isinstance(item.record, r.Trajectory)]
    assert {record.session_id for record in made} == before.keys()
    for record in made:
        assert (record.status, record.cause) == ("complete", "policy")
        assert [(reward.name, reward.value) for reward in record.rewards] == [("slow", 0.5)]
    assert judged.trajectories() == before
