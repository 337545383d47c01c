"""Dead letters, whose bytes are no record."""

from schemas.records import Record


class Letter(Record):
    """Bytes as they stand on a topic; `decode=Letter` makes a reader of dead letters."""

    def __init__(self, data: bytes) -> None:
        self.data = data
