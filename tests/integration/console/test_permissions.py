"""A user that may only look is enough for a console, and cannot write."""

from pathlib import Path

from confluent_kafka import Producer

from seamlessflow.access import OBSERVER, needs, permissions
from seamlessflow.console.log.follower import Follower
from seamlessflow.console.log.lag_watch import LagWatch
from seamlessflow.console.log.lookup import RawDecoder, RecordLookup
from seamlessflow.console.log.moment import Moment
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.infra.kafka.client import client_options
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.topics.permissions import grant
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.topics import CONTROL, REQUESTS, SESSIONS
from tests.builders.brokers.secured import USERS, as_user, secured_broker
from tests.builders.own_topics import small
from tests.builders.records import commands as asked
from tests.builders.records import control
from tests.waiting import until

WAIT_S = 120.0


def test_an_observer_reads_all_and_writes_nothing(tmp_path: Path) -> None:
    with secured_broker(tmp_path, watches=False) as kafka:
        owner = as_user(kafka, "owner", USERS["owner"])
        visitor = as_user(kafka, "visitor", USERS["visitor"])
        create_topics(owner, small(CONTROL, REQUESTS, SESSIONS))
        grant(owner, "visitor", permissions(needs("managers", "agents", "rewards")[OBSERVER], ""))
        producer = Producer(client_options(owner))
        for number in range(3):
            producer.produce(CONTROL.name, encode(control.joined(f"w{number}")), partition=0)
        producer.flush(WAIT_S)
        commands = Producer(client_options(owner))
        for _ in range(3):
            commands.produce(REQUESTS.name, encode(asked.assign_reward()), partition=0)
        commands.flush(WAIT_S)
        managers = Reader(owner, "test", group="managers")
        managers.commit({(REQUESTS.name, 0): (1, "")})
        managers.close()
        lookup = RecordLookup(visitor)
        run_log = RunLog(lookup, RawDecoder(visitor))
        follower = Follower(visitor, run_log)
        follower.start()
        try:
            until(lambda: run_log.index.records == 6, f"the records: {follower.following}")
            assert run_log.picture(Moment("control", 0, 1)).control.records == 2
            assert lags(visitor, run_log) == [("requests", 2)]
        finally:
            follower.close()
            lookup.close()
        assert "authorization" in refusal(visitor).lower()


def lags(kafka: KafkaSettings, run_log: RunLog) -> list[tuple[str, int]]:
    """Return the lag of the managers' group by topic; a group that is refused has none."""
    watch = LagWatch(kafka, {REQUESTS.name: "managers"}, run_log.index)
    watch.start()
    try:
        until(lambda: bool(watch.state()), "the group")
        return [(group.topic, group.lag) for group in watch.state() if not group.refused]
    finally:
        watch.close()


def refusal(kafka: KafkaSettings) -> str:
    """Return why a record of this user is not taken; empty if it is."""
    # Not idempotent, so that it asks for the topic itself.
    intruder = Producer({**client_options(kafka), "message.timeout.ms": 30_000})
    refused: list[str] = []
    intruder.produce(
        CONTROL.name,
        b"x",
        partition=0,
        on_delivery=lambda error, _: refused.append("" if error is None else error.str()),
    )
    intruder.flush(WAIT_S)
    return refused[0]
