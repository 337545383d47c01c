"""Settings that choose tasks from a source's rows."""

from pydantic import Field

from seamlessflow.infra.settings import Section

Scalar = str | int | float | bool | None
"""Value in a column by which a row may be chosen."""


class TaskDataSection(Section):
    """The rows of a source that are tasks, and what a task takes from its row."""

    map: dict[str, str | dict[str, str]] = Field(
        {},
        description="Column for each task member, such as {prompt: question, answer: solution, "
        "metadata: {level: level}}; a.b means b inside a; none: the task takes all columns",
    )
    where: dict[str, Scalar | list[Scalar]] = Field(
        {},
        description="Values that a row must have, by column; a list means one of several, such as "
        "{level: [1, 2]}; other rows are left out",
    )
    held_back: float = Field(
        0,
        ge=0,
        lt=1,
        description="Share of the tasks that are not trained on, chosen by a hash over their ids; "
        "an evaluation that names the same share gets only these",
    )

    @property
    def chooses(self) -> bool:
        """True if a setting is set."""
        return bool(self.map or self.where or self.held_back)
