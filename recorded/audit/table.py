"""An audit's report on the terminal."""

from rich.table import Table

from seamlessflow.recorded.audit.report import AuditReport

_CAPTION = "open: not over yet\nnot checkable: retention removed what it needs"


def audit_table(report: AuditReport) -> Table:
    """Return the results of all checks as a table."""
    shown = Table("check", "checked", "open", "not checkable", "violations", caption=_CAPTION)
    for column in range(1, 5):
        shown.columns[column].justify = "right"
    for result in report.results:
        counts = (result.checked, result.open, result.not_checkable, result.violations)
        style = "red" if result.violations else ""
        shown.add_row(result.check, *(f"{count:,}" for count in counts), style=style)
    return shown
