"""An audit's report on the terminal."""

from rich.table import Table

from seamlessflow.recorded.audit.report import AuditReport

_CAPTION = "open: not over yet\nnot checkable: retention removed what it needs"


def audit_table(report: AuditReport) -> Table:
    """Return the results of all checks as a table."""
    shown = Table("check", "checked", "open", "not checkable", "violations", caption=_CAPTION)
    for column in range(1, 5):
        shown.columns[column].justify = "right"
    for one in report.results:
        counts = (one.checked, one.open, one.not_checkable, one.violations)
        style = "red" if one.violations else ""
        shown.add_row(one.check, *(f"{count:,}" for count in counts), style=style)
    return shown
