"""Watch of topics and groups: a live view on a terminal, a view after the other elsewhere."""

from collections.abc import Callable
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.inspection.topics.growth import READINGS, LagGrowth
from seamlessflow.inspection.topics.state import TopicState
from seamlessflow.inspection.topics.tables import group_tables, topic_table

Look = Callable[[], list[TopicState]]
"""Returns the topics as they are now."""
EVERY_S = 2.0
_LEGEND = (
    f"every {EVERY_S:g} s, until Ctrl-C; growing: rose, and did not fall in {READINGS} readings"
)


class TopicWatch:
    """Readings one after the other, and the growth of lags over them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._growth = LagGrowth()
        self._found: list[TopicState] = []

    def view(self) -> RenderableType:
        """Return the next reading; the last one, with a notice, while Kafka is away."""
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
