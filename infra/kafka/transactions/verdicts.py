"""Verdicts from Kafka's own record of transactions, the topic `__transaction_state`. Pure.

A transaction is decided once a marker for its end is prepared for certain partitions. If its id has
moved on but the transaction is open in one of these partitions, it hangs there. The coordinator
counts it as ended, so no marker will come (KAFKA-20734). The decision says which end is right.
Layouts: `TransactionLogKey` and `TransactionLogValue` in Apache Kafka 4.3.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from seamlessflow.infra.kafka.transactions.wire import BrokerAnswer, TopicPartition

TOPIC = "__transaction_state"
_FLEXIBLE = 1
"""Version from which strings and arrays are compact."""


class IdState(IntEnum):
    """A transactional id's states, numbered as in Kafka."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class Verdict(Enum):
    """Verdicts on a transaction that is open in a partition."""

    UNDER_WAY = "under way"
    """Its producer or its coordinator will end it."""
    COMMITTED = "committed"
    """It hangs, and was decided to be committed."""
    ABORTED = "aborted"
    """It hangs, and was decided to be aborted."""
    UNKNOWN = "not recorded any more"
    """The coordinator's records no longer show the transaction: it may hang."""


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One state of a transactional id, with its transaction's partitions at that time."""

    transactional_id: str
    producer_id: int
    state: IdState
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a producer's transaction, and its transactional id ("" if unknown)."""

    transactional_id: str
    verdict: Verdict


_DECIDED = {IdState.PREPARE_COMMIT: Verdict.COMMITTED, IdState.PREPARE_ABORT: Verdict.ABORTED}


def judge(history: Sequence[StateRecord], producer_id: int, place: TopicPartition) -> Judgement:
    """Return the verdict on a producer's open transaction in a partition.

    `history`: all ids' records, each id's in log order.
    """
    owned = [record for record in history if record.producer_id == producer_id]
    if not owned:
        return Judgement("", Verdict.UNKNOWN)
    name = owned[-1].transactional_id
    states = [record for record in history if record.transactional_id == name]
    concerned = [number for number, record in enumerate(states) if place in record.partitions]
    if not concerned:
        return Judgement(name, Verdict.UNKNOWN)
    newest = concerned[-1]
    if newest == len(states) - 1:
        return Judgement(name, Verdict.UNDER_WAY)
    return Judgement(name, _DECIDED.get(states[newest].state, Verdict.UNKNOWN))


def state_records(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[StateRecord]:
    """Return the states in the topic's keys and values; deleted ids are left out."""
    return [
        _state_record(key, value)
        for key, value in records
        if key is not None and value is not None and key[:2] == b"\0\0"
    ]


def _state_record(key: bytes, value: bytes) -> StateRecord:
    name = BrokerAnswer(key[2:])
    answer = BrokerAnswer(value)
    transactional_id = name.raw(name.number("h")).decode()
    version = answer.number("h")
    producer_id = answer.number("q")
    answer.raw(struct.calcsize(">hi"))  # epoch of the producer, time-out
    state = IdState(answer.number("B"))
    partitions = _compact(answer) if version >= _FLEXIBLE else _plain(answer)
    return StateRecord(transactional_id, producer_id, state, frozenset(partitions))


def _compact(answer: BrokerAnswer) -> list[TopicPartition]:
    places: list[TopicPartition] = []
    for _ in answer.items():
        topic = answer.text()
        places += [(topic, answer.number("i")) for _ in answer.items()]
        answer.tags()
    return places


def _plain(answer: BrokerAnswer) -> list[TopicPartition]:
    places: list[TopicPartition] = []
    for _ in range(answer.number("i")):
        topic = answer.raw(answer.number("h")).decode()
        places += [(topic, answer.number("i")) for _ in range(answer.number("i"))]
    return places
