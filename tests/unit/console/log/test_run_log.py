"""A picture of a moment is the plain fold of the records that belong to it, and stays so."""

import random
from collections.abc import Iterable, Sequence

from seamlessflow.console.log.lookup import RawDecoder
from seamlessflow.console.log.moment import READ_TOPICS, Moment
from seamlessflow.console.log.run_log import (
    AnyFold,
    RunPicture,
    first_fold,
    newest_by_key,
    picture_of,
)
from seamlessflow.console.views.now import now_page
from seamlessflow.console.views.session.page import SessionPage
from seamlessflow.console.views.sessions import SessionQuery, sessions_page
from seamlessflow.console.web.console import AskedPage, plain
from seamlessflow.console.web.session_pages import SessionPages
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.observed import ObservedSession, observed_at
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.tokens import POLICY
from seamlessflow.schemas.topics import SESSIONS, fleet_key
from tests.builders.console.memory_log import KAFKA, console_of, history_of, items_of, raw_item
from tests.builders.console.recorded import delivered, recorded_items
from tests.builders.records import control, fleet

Facts = tuple[dict[str, str], list[tuple[str, float]], int, int | None]
"""States of turns by their ids, rewards, sampled tokens, and the time of the end."""
DECODED: dict[tuple[str, int, int], Received] = {}


def decoded_at(item: Received) -> Received:
    """Return the item's record; each is decoded once for all tests here."""
    place = item.topic, item.partition, item.offset
    if place not in DECODED:
        DECODED[place] = RawDecoder(KAFKA).decoded(item)
    return DECODED[place]


def plainly_cut(items: Iterable[Received], moment: Moment) -> list[Received]:
    """Return the records that belong to a moment, told by their definition alone."""
    by_place: dict[tuple[str, int], list[Received]] = {}
    for item in items:
        by_place.setdefault((item.topic, item.partition), []).append(item)
    mine = [item for item in by_place[moment.place] if item.offset <= moment.offset]
    at_ms = max(item.timestamp_ms for item in mine)
    kept = list(mine)
    for place, others in by_place.items():
        if place == moment.place:
            continue
        for item in others:
            if item.timestamp_ms > at_ms:
                break
            kept.append(item)
    return kept


def plain_picture(items: Iterable[Received], moment: Moment) -> RunPicture:
    """Return the picture by a fold from the beginning, without index and copies."""
    kept = plainly_cut(items, moment)
    states: dict[tuple[str, int], AnyFold] = {}
    cut: dict[tuple[str, int], int] = {}
    for item in kept:
        place = item.topic, item.partition
        cut[place] = cut.get(place, 0) + 1
        state = states.get(place) or first_fold(place)
        if state is not None:
            states[place] = state
            state.apply(decoded_at(item))
    return picture_of(moment, max(item.timestamp_ms for item in kept), cut, states)


def random_moments(rng: random.Random, count: int) -> list[Moment]:
    items = recorded_items()
    chosen = (rng.choice(items) for _ in range(count))
    return [Moment(item.topic, item.partition, item.offset) for item in chosen]


def test_at_200_random_moments_now_is_the_plain_fold(rng: random.Random) -> None:
    run_log, _ = history_of(delivered(recorded_items(), rng))
    for moment in random_moments(rng, 200):
        expected = plain_picture(recorded_items(), moment)
        assert plain(now_page(run_log.picture(moment))) == plain(now_page(expected)), moment


def test_at_200_random_moments_a_session_is_what_show_shows_at_that_offset(
    rng: random.Random,
) -> None:
    run_log, _ = history_of(delivered(recorded_items(), rng))
    pages = SessionPages(run_log, None)
    events = [decoded_at(item) for item in recorded_items() if item.topic == SESSIONS.name]
    named = ((item, getattr(item.record, "session_id", "")) for item in events)
    asked = [(item, session_id) for item, session_id in named if session_id]
    for item, session_id in (rng.choice(asked) for _ in range(200)):
        mine = [event for event in events if event.partition == item.partition]
        session = shown_at(mine, session_id, item.offset)
        moment = Moment(item.topic, item.partition, item.offset)
        page = pages.page(run_log.outline(moment).cut, session_id)
        assert facts_of(page) == facts_shown(session), moment


def shown_at(events: Sequence[Received], session_id: str, offset: int) -> Session:
    """Return the session that `seamlessflow show SESSION --at OFFSET` prints."""
    whole = ObservedSession(session_id, lambda policy: "arguments")
    for event in events:
        whole.apply(event)
    session = observed_at(events, whole, offset).session
    assert session is not None
    return session


def facts_of(page: SessionPage) -> Facts:
    turns = {turn.turn: turn.state for turn in page.turns}
    rewards = sorted((reward.name, reward.value) for reward in page.rewards)
    return turns, rewards, page.sampled, page.finalized_at_ms


def facts_shown(session: Session) -> Facts:
    turns = {name: turn.state.value for name, turn in session.turns.items()}
    rewards = sorted((reward.name, reward.value) for reward in session.rewards.values())
    sampled = sum(node.length for node in session.tree.nodes if node.origin == POLICY)
    return turns, rewards, sampled, session.finalized_at_ms


def test_at_random_moments_the_list_of_sessions_is_the_plain_fold(rng: random.Random) -> None:
    run_log, _ = history_of(delivered(recorded_items(), rng))
    for moment in random_moments(rng, 40):
        expected = sessions_page(plain_picture(recorded_items(), moment), SessionQuery())
        assert sessions_page(run_log.picture(moment), SessionQuery()) == expected, moment


def test_a_picture_does_not_change_while_the_log_grows(rng: random.Random) -> None:
    items = sorted(recorded_items(), key=lambda item: (item.timestamp_ms, item.offset))
    half = [item for item in items if item.timestamp_ms <= items[len(items) // 2].timestamp_ms]
    run_log, log = history_of(half)
    moments = [Moment(item.topic, item.partition, item.offset) for item in rng.sample(half, 20)]
    before = [plain(now_page(run_log.picture(moment))) for moment in moments]
    log.add(items[len(half) :])
    run_log.append(items[len(half) :])
    assert [plain(now_page(run_log.picture(moment))) for moment in moments] == before


def test_a_moment_reads_few_records_again(rng: random.Random) -> None:
    run_log, log = history_of(items_of("control", [control.claimed()] * 20_000))
    for _ in range(50):
        run_log.picture(Moment("control", 0, rng.randrange(20_000)))
    sizes = [end - start for ranges in log.asked for start, end in ranges.values()]
    assert max(sizes) <= 256


def test_of_heartbeats_the_last_of_each_process_that_can_be_read_counts() -> None:
    beats = [fleet.heartbeat(f"w{number % 3}", running=number) for number in range(9)]
    items = [
        raw_item("fleet", 0, offset, offset, encode(beat), key=fleet_key(beat))
        for offset, beat in enumerate(beats)
    ]
    items.append(raw_item("fleet", 0, 9, 9, b"garbage", key=fleet_key(beats[-1])))
    read = list(newest_by_key(items, RawDecoder(KAFKA).decoded))
    assert [item.offset for item in read] == [6, 7, 8, 9]


def test_records_that_are_delivered_twice_count_once() -> None:
    items = items_of("control", [control.claimed()] * 10)
    run_log, _ = history_of([*items, *items[5:]])
    assert run_log.index.records == 10
    assert run_log.picture(None).control.records == 10


def test_a_link_without_a_moment_has_one_that_shows_the_same_for_ever() -> None:
    console = console_of(items_of("control", [control.claimed()] * 10))
    frame, _ = console.page(AskedPage("now", {}))
    assert (frame.moment, frame.permanent) == ("", "control:9")


def test_every_topic_with_records_is_known() -> None:
    assert {item.topic for item in recorded_items()} <= set(READ_TOPICS)
