"""Files of JSON lines as editors and other systems write them, all with the same content."""

from collections.abc import Callable, Sequence

Written = Callable[[Sequence[bytes]], bytes]

MARK = b"\xef\xbb\xbf"

LINE_FORMS: dict[str, Written] = {
    "plain": lambda lines: b"\n".join(lines),
    "ended": lambda lines: b"\n".join(lines) + b"\n",
    "marked": lambda lines: MARK + b"\n".join(lines) + b"\n",
    "every line marked": lambda lines: b"".join(MARK + line + b"\n" for line in lines),
    "of Windows": lambda lines: MARK + b"\r\n".join(lines) + b"\r\n",
    "blank last lines": lambda lines: b"\n".join(lines) + b"\n\n \t\r\n",
    "blank lines between": lambda lines: b"\n\r\n".join(lines) + b"\n" + MARK + b"\n",
    "blank first lines": lambda lines: MARK + b"\n \n" + b"\n".join(lines),
    "with spaces": lambda lines: b"".join(b" " + line + b"\t \n" for line in lines),
}
"""Each joins lines, of which none has a line feed."""

SEPARATORS = "a\u2028b\u2029c\u0085d"
"""Text with what some readers take for the end of a line."""
