"""Settings that choose tasks from a source's rows."""

from pydantic import Field

from seamlessflow.infra.settings import Section

Scalar = str | int | float | bool | None
"""Value in a column by which a row may be chosen."""


class TaskDataSection(Section):
    """The rows of a source that are tasks, and what a task takes from its row."""

    map: dict[str, str | dict[str, str]] = Field(
        {},
        description="Members of a task and the columns that they come from, such as {prompt: "
        "question, answer: solution, metadata: {level: level}}; a.b is b inside a; none: a task "
        "has all columns",
    )
    where: dict[str, Scalar | list[Scalar]] = Field(
        {},
        description="Values that columns of a row must have, or one of a list of values, such as "
        "{level: [1, 2]}; other rows are no tasks",
    )
    held_back: float = Field(
        0,
        ge=0,
        lt=1,
        description="Share of the tasks, by the hash of their ids, that are not trained on; an "
        "evaluation that names the same share has them alone",
    )

    @property
    def chooses(self) -> bool:
        """True if a setting is set."""
        return bool(self.map or self.where or self.held_back)
