"""The log of the embedded broker keeps its beginning and its newest part, also while it grows."""

import os
from pathlib import Path

from seamlessflow.infra.broker.watches import MOST_BYTES, LogWatch, cut
from tests.waiting import until

MOST = 8_000


def lines(first: int, last: int) -> bytes:
    return b"".join(b"line %05d\n" % number for number in range(first, last))


def test_a_short_log_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    cut(log, MOST)
    assert not log.exists()
    log.write_bytes(lines(0, 100))
    cut(log, MOST)
    assert log.read_bytes() == lines(0, 100)
    assert MOST_BYTES == 8 * 1024 * 1024


def test_a_long_log_keeps_its_beginning_and_its_end_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_bytes(lines(0, 4_000))
    cut(log, MOST)
    kept = log.read_bytes()
    head, _, tail = kept.partition(b"--- ")
    said, _, tail = tail.partition(b"\n")
    assert len(kept) < MOST / 2 + 100
    assert head == lines(0, len(head) // 11) and len(head) > 900
    assert tail == lines(4_000 - len(tail) // 11, 4_000) and len(tail) > 2_900
    assert said == b"%d bytes of this log were cut out here ---" % (
        len(lines(0, 4_000)) - len(head) - len(tail)
    )


def test_a_log_is_cut_under_the_program_that_appends_to_it(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with log.open("ab", buffering=0) as program:
        program.write(b"it begins\n")
        watch = LogWatch(log, every_s=0.005, most=MOST)
        program.write(lines(0, 4_000))
        until(lambda: b" were cut out here" in log.read_bytes())
        watch.close()
        program.write(b"it ends\n")
    kept = log.read_bytes()
    assert kept.startswith(b"it begins\nline 00000\n") and kept.endswith(b"it ends\n")
    assert os.path.getsize(log) <= MOST


def test_a_log_is_cut_when_its_broker_ends(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_bytes(lines(0, 4_000))
    LogWatch(log, every_s=60, most=MOST).close()
    assert len(log.read_bytes()) < MOST
