"""Kinds of records on `requests`: commands about a session, and questions of a gateway."""

from seamlessflow.schemas.records import (
    AssignReward,
    CancelTurn,
    CloseSession,
    CountTokens,
    DescribeSession,
    OpenSession,
    RequestTurn,
)

SessionCommand = OpenSession | RequestTurn | CancelTurn | AssignReward | CloseSession
"""Commands, which become events of their session."""
GatewayQuestion = CountTokens | DescribeSession
"""Questions, which a manager answers without an event."""
