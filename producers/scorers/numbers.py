"""Numbers in answers as people and models write them, compared as exact fractions. Pure."""

import re
from fractions import Fraction
from typing import NamedTuple

from seamlessflow.producers.scorers.answers import after_reasoning, marked_answer, plain

_TOLERANCE = 1e-6
_MOST_DIGITS = 400
_SYMBOLS = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "°": "degree"}
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]+)\}|(\d))\s*(?:\{([^{}]+)\}|(\d))")
_TIMES_TEN = re.compile(r"\s*(?:\\times|\\cdot|\u00d7|\u00b7|\*|x)\s*10\s*\^\s*([+-]?\d+)")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e]")
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070\u2074-\u207b]+")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)])[+-]\s*)?(?P<money>[$€£¥])?\s*(?P<inner>(?<=[$€£¥])-)?"
    r"(?<![\w^.])(?:(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"
    r"|(?P<number>\d(?:[\d,'_]|\.(?=\d)| (?=\d{3}(?!\d)))*|\.\d+)(?P<exponent>[eE][+-]?\d+)?"
    r"(?:\s*/\s*(?P<over>\d+(?:\.\d+)?))?)"
    r"\s*(?P<percent>\\?%)?"
)
_UNIT = re.compile(r"\s*([^\W\d_]+(?:\s*[/^]\s*[\w]+)?|[°$€£¥])")
_GROUPS = re.compile(r"\d{1,3}(?:(?P<mark>[,' _.])\d{3})(?:(?P=mark)\d{3})*(?:\.\d+)?")
_WORDS = {"and", "or", "is", "are", "in", "per", "so", "the", "of", "a"}


class Quantity(NamedTuple):
    """A number with its percent sign and its unit."""

    value: Fraction
    percent: bool
    unit: str


def numeric(answer: str, reference: object, tolerance: float = _TOLERANCE) -> float:
    """Return 1 if the answer's number is the reference's, else 0.

    An unmarked answer is the last line. Only the text after the last = counts. Several different
    numbers are no answer. `tolerance` is relative to the reference. Raises `ValueError` for a
    reference that is not one number.
    """
    wanted = quantities(str(reference))
    if len(set(wanted)) != 1:
        raise ValueError(f"the reference {str(reference)[:60]!r} is not one number")
    named = quantities(_answer_of(answer))
    values = {(quantity.value, quantity.percent) for quantity in named}
    return float(len(values) == 1 and _equal(named[-1], wanted[0], tolerance))


def quantities(text: str) -> list[Quantity]:
    """Return the numbers in a text with their units, in order."""
    text = plain(_RAISED.sub(r"^\g<0>", _VULGAR.sub(r" \g<0>", text)))
    text = text.replace("\\,", "").replace("\\!", "").replace("{,}", ",")
    text = text.replace("\\$", "$").replace("^\\circ", "°").replace("\u2044", "/")
    text = _FRACTION.sub(_over, text).replace("{", " ").replace("}", " ")
    text = _TIMES_TEN.sub(r"e\1", text)
    read = []
    for match in _NUMBER.finditer(text):
        if (value := _value(match)) is not None:
            unit = None if match[0].rstrip().endswith(",") else _UNIT.match(text, match.end())
            word = match["money"] or (unit[1] if unit else "")
            read.append(Quantity(value, bool(match["percent"]), _unit(word)))
    return read


def _answer_of(text: str) -> str:
    marked = marked_answer(text)
    if marked is None:
        lines = [line for line in after_reasoning(text).splitlines() if line.strip()]
        marked = lines[-1] if lines else ""
    return re.split(r"[=≈]|\\approx", marked)[-1]


def _equal(answer: Quantity, wanted: Quantity, tolerance: float) -> bool:
    if answer.unit and wanted.unit and answer.unit != wanted.unit:
        return False
    return any(
        abs(value - wanted_value) <= Fraction(tolerance) * abs(wanted_value)
        for value, wanted_value in _readings(answer, wanted)
    )


def _readings(answer: Quantity, wanted: Quantity) -> list[tuple[Fraction, Fraction]]:
    """Return the pairs of values to compare: 50 % is a half, but also 50 if 50 is asked for."""
    if answer.percent == wanted.percent:
        return [(answer.value, wanted.value)]
    if wanted.percent:
        return [(answer.value, wanted.value), (answer.value, wanted.value / 100)]
    as_it_stands = [(answer.value, wanted.value)] if abs(wanted.value) > 1 else []
    return [(answer.value / 100, wanted.value), *as_it_stands]


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > _MOST_DIGITS:
        return None
    negative = "-" in (match["sign"] or "") or bool(match["inner"])
    if match["whole"] is not None:
        parts = [int(match[name]) for name in ("whole", "top", "bottom")]
        if not parts[2]:
            return None
        value = parts[0] + Fraction(parts[1], parts[2])
    else:
        exponent = (match["exponent"] or "e0")[1:]
        if abs(int(exponent)) > _MOST_DIGITS:
            return None
        value = _decimal(match["number"]) * Fraction(10) ** int(exponent)
        over = Fraction(match["over"] or 1)
        if not over:
            return None
        value /= over
    return -value if negative else value


def _decimal(text: str) -> Fraction:
    """Return the value of digits with marks between groups of three, or with a decimal mark."""
    text = text.rstrip(",'_")
    grouped = _GROUPS.fullmatch(text)
    mark = grouped["mark"] if grouped else ""
    if mark and not text.startswith("0") and (mark != "." or text.count(".") > 1):
        whole, _, rest = text.partition("." if mark != "." else "end")
        return Fraction(f"{re.sub(r'[^0-9]', '', whole)}.{rest or 0}")
    digits = text.replace(" ", "").replace("'", "").replace("_", "")
    if digits.count(",") == 1 and "." not in digits:
        return Fraction(digits.replace(",", "."))
    return Fraction(digits.replace(",", "")) if digits.count(".") < 2 else Fraction(0)


def _unit(word: str) -> str:
    """Return a unit, the same for singular and plural."""
    word = _SYMBOLS.get(word, word)
    if word.lower() in _WORDS:
        return ""
    return word.removesuffix("s") if len(word) > 2 else word


def _over(match: re.Match[str]) -> str:
    return f" {match[1] or match[2]}/{match[3] or match[4]} "
