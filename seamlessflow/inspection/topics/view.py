"""Topics and Kafka consumer groups for the terminal: tables, and a watch that shows them anew.

On a terminal the watch is a live view, elsewhere it prints one view after another.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.topics.lag import GroupState, PartitionLag
from seamlessflow.inspection.topics.state import (
    READINGS,
    LagGrowth,
    TopicState,
    joined,
    ranges,
)

_OFFSETS = (
    "offsets: from the first that is kept to the end. A topic holds at most as many records: each "
    "transaction takes an offset, compaction removes records; --count reads and counts them"
)
_RECORDS = (
    "records: committed ones with a value, read and counted; > if the time was over. offsets: also "
    "marks of transactions and gaps"
)
_OTHERS = (
    "Trainer, scheduler, gateways and rollout processes read by assignment, in no group: their lag "
    "is at their /metrics only"
)
_DENIED = "not permitted"
Look = Callable[[], list[TopicState]]
"""Returns the topics as they are now."""
EVERY_S = 2.0
_LEGEND = (
    f"every {EVERY_S:g} s, until Ctrl-C; growing: rose, and did not fall in {READINGS} readings"
)


def topic_table(states: Sequence[TopicState]) -> Table:
    """Return a row for each topic; with a column for records if they were counted."""
    counted = any(state.records is not None for state in states)
    names = ["topic", "partitions", "offsets", "dead letters", "read by", "lag"]
    table = Table(*names, caption=_RECORDS if counted else _OFFSETS)
    for column in (1, 2, 3, 5):
        table.columns[column].justify = "right"
    if counted:
        table.add_column("records", justify="right")
    for state in states:
        group = state.group
        dead = f"{state.dead_letters:,}" if state.dead_letters else ""
        name = group.name if group else ""
        lag = _lag(group) if group else ""
        cells = [state.name, str(state.partitions), f"{state.offsets:,}", dead, name, lag]
        table.add_row(*cells, *([_records(state)] if counted else []))
    return table


def _lag(group: GroupState) -> str:
    return _DENIED if group.refused else f"{group.lag:,}"


def group_tables(groups: Sequence[GroupState], growth: LagGrowth) -> RenderableType:
    """Return each group's members, and the partitions that each of them owns."""
    parts: list[RenderableType] = []
    for group in groups:
        parts += [
            _headline(group),
            Padding(_group_table(group, growth), (0, 0, 0, 2), expand=False),
        ]
    return Group(*parts, Text(_OTHERS, "dim italic"))


class TopicWatch:
    """Readings one after the other, and the growth of lags over them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._growth = LagGrowth()
        self._found: list[TopicState] = []

    def view(self) -> RenderableType:
        """Return the next reading; while Kafka is away, the last one with a notice."""
        notice = Text(f"{datetime.now():%H:%M:%S}  {_LEGEND}", "dim")
        try:
            self._found = self._look()
            self._growth.apply(state.group for state in self._found if state.group)
        except KafkaUnavailable as error:
            notice = Text(f"{datetime.now():%H:%M:%S}  as it was before: {error}", "bold red")
        groups = [state.group for state in self._found if state.group]
        return Group(notice, group_tables(groups, self._growth), topic_table(self._found))


def watch(console: Console, look: Look, pause: Callable[[float], None]) -> None:
    """Show readings until `pause` raises."""
    readings = TopicWatch(look)
    if not console.is_terminal:
        while True:
            console.print(readings.view())
            pause(EVERY_S)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(readings.view(), refresh=True)
            pause(EVERY_S)


def _headline(group: GroupState) -> Text:
    line = Text.assemble((group.name, "bold"), f" reads {group.topic}: ")
    if group.refused:
        return line.append(f"{_DENIED} to describe the group: {group.refused}", "yellow")
    members = f"{group.members} member{'' if group.members == 1 else 's'}"
    line.append(members, "" if group.members else "bold red")
    line.append(f", {group.state}, lag {group.lag:,}")
    if not group.members and group.lag:
        since = group.waits_since_ms
        at = f" since {datetime.fromtimestamp(since / 1000):%Y-%m-%d %H:%M:%S}" if since else ""
        line.append(f", unread{at}", "bold red")
    return line


def _group_table(group: GroupState, growth: LagGrowth) -> RenderableType:
    if group.refused:
        return Text()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partitions", "owner", "host"):
        table.add_column(name, overflow="fold")
    table.add_column("lag", justify="right")
    table.add_column("")
    for numbers, place in joined(group.partitions):
        grown = growth.increase(group.name, place.number) if place.lag else 0
        owner = Text(place.owner) if place.owner else Text("no owner", "bold red")
        table.add_row(ranges(numbers), owner, place.host, f"{place.lag:,}", _note(place, grown))
    return table


def _note(place: PartitionLag, grown: int) -> Text:
    return Text(f"growing: {grown:+,}", "bold red") if grown else Text()


def _records(state: TopicState) -> str:
    if state.records is None:
        return ""
    return f"{state.records:,}" if state.counted else f"> {state.records:,}"
