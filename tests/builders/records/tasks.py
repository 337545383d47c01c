"""Builder of a task for agents; see `builder`."""

from seamlessflow.schemas.records import Task
from tests.builders.records.builder import builder

task = builder(Task(policy="policy", payload=b"{}", issued_at_ms=0, deadline_ms=1))
