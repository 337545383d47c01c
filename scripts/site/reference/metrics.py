"""Reference for all processes' metrics, from `infra/telemetry/names.py`."""

from scripts.site.reference.markdown import code, entry, plain
from seamlessflow.infra.telemetry.names import METRICS

_INTRODUCTION = """# Metrics

This page has the metrics that processes show at `/metrics` and export by OTLP.
Units are those of OpenTelemetry (UCUM). [Metrics](../runbooks/metrics.md) says how to collect them.
"""


def page() -> str:
    """Return the whole page, a section for each part of the system."""
    parts, section = [_INTRODUCTION], ""
    for name, metric in METRICS.items():
        part = name.split("_")[1]
        if part != section:
            parts.append(f"\n## {part.capitalize()}\n")
            section = part
        labels = f"by {', '.join(map(code, metric.labels))}" if metric.labels else ""
        parts.append(entry(name, plain(metric.meaning), [metric.kind, code(metric.unit), labels]))
    return "\n".join(parts)
