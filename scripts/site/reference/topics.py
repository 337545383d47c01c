"""Reference of the topics of the log, from `schemas/topics.py`."""

from scripts.site.reference.markdown import code, plain, table
from scripts.site.reference.records import link
from seamlessflow.schemas.registry import raw_schemas
from seamlessflow.schemas.topics import DAY_MS, FOR_EVER, HOUR_MS, TOPICS, Topic

_INTRODUCTION = """# Topics

This page has the topics that `seamlessflow topics create` makes, and the records on each.
Partitions are those of new topics. Each topic has one for dead letters beside it.
"""
_HEAD = ("topic", "partitions", "kept", "clean-up", "largest record", "dead letters")


def page() -> str:
    """Return the whole page."""
    rows = [_row(topic) for topic in TOPICS.values()]
    return "\n".join([_INTRODUCTION, table(_HEAD, rows), *map(_section, TOPICS.values())])


def kept(retention_ms: int) -> str:
    """Return a retention in words."""
    if retention_ms == FOR_EVER:
        return "for ever"
    days, hours = retention_ms / DAY_MS, retention_ms / HOUR_MS
    number, word = (days, "day") if days >= 1 else (hours, "hour")
    return f"{number:g} {word}{'' if number == 1 else 's'}"


def _row(topic: Topic) -> tuple[str, ...]:
    return (
        f"[`{topic.name}`](#{topic.name})",
        str(topic.partitions),
        kept(topic.retention_ms),
        code(topic.cleanup),
        f"{topic.max_record_bytes / 2**20:g} MiB",
        code(topic.dead_letters),
    )


def _section(topic: Topic) -> str:
    schemas = raw_schemas()
    names = [record.__name__ for record in topic.records]
    lines = [f"- {link(name, 'records.md')}: {plain(schemas[name]['doc'])}" for name in names]
    return f"\n## {topic.name} {{ #{topic.name} }}\n\n" + "\n".join(lines) + "\n"
