"""Reference for the log's topics, from `schemas/topics.py`."""

from scripts.site.reference.markdown import code, facts, plain
from scripts.site.reference.records import link
from seamlessflow.schemas.registry import raw_schemas
from seamlessflow.schemas.topics import DAY_MS, FOR_EVER, TOPICS, Topic

_INTRODUCTION = """# Topics

This page has the topics that `seamlessflow topics create` makes, and the records on each.
Partitions are those of new topics.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *map(_section, TOPICS.values())])


def kept(retention_ms: int) -> str:
    """Return a retention in words."""
    if retention_ms == FOR_EVER:
        return "kept for ever"
    days, hours = divmod(retention_ms // (DAY_MS // 24), 24)
    return "kept " + " ".join(f"{n} {word}" for n, word in ((days, "d"), (hours, "h")) if n)


def _section(topic: Topic) -> str:
    small = [
        f"partitions {topic.partitions}",
        kept(topic.retention_ms),
        f"clean-up {code(topic.cleanup)}",
        f"largest record {topic.max_record_bytes / 2**20:g} MiB",
        f"dead letters on {code(topic.dead_letters)}",
    ]
    names = [record.__name__ for record in topic.records]
    lines = [f"- {link(name, 'records.md')}: {plain(raw_schemas()[name]['doc'])}" for name in names]
    return "\n".join([f"## {topic.name} {{ #{topic.name} }}\n", facts(small), "", *lines, ""])
