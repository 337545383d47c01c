"""Tasks for the models: single questions of several kinds, sessions, tools, and sums."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "sums": (
        "What is 17 + 25? Answer with the number only.",
        "What is 1250 - 375?",
        "List the first ten square numbers.",
        "How many seconds are there in three hours?",
    ),
    "facts": (
        "What is the capital of France?",
        "Who wrote Romeo and Juliet?",
        "Name the planets of the solar system.",
        "What is the boiling point of water?",
    ),
    "prose": (
        "Explain how rain forms.",
        "Write a short story about a lighthouse keeper.",
        "Why do people learn music?",
        "Describe a market in the morning.",
    ),
    "code": (
        "Write a Python function that reverses a string.",
        "Write a shell command that counts the lines of all text files.",
        "Write a C struct for a point with two coordinates.",
        "Write an SQL query that returns the ten newest orders.",
    ),
    "json": (
        "Describe a made-up person as JSON with name, age and city.",
        "Give three books as a JSON list with title and year.",
        "Write a YAML file with the settings of a web server.",
        "Give the days of the week as a JSON object with their numbers.",
    ),
    "languages": (
        "Schreibe einen Satz über den Winter.",
        "Écris une phrase sur la mer.",
        "用中文写一句关于春天的话。",
        "Describe a birthday party with emojis only.",
    ),
}
"""Questions by kind."""

FOLLOW_UPS = (
    "Why?",
    "Give an example.",
    "Say it in one sentence.",
    "Now as a list of three points.",
    "Translate that to French.",
    "How many words were that?",
    "Write it as JSON.",
)
"""The user's words in a session's second to eighth turn."""

TOOL_QUESTIONS = (
    "What is the weather in Lisbon?",
    "Find all files that mention a port number.",
    "What is 1250 * 48?",
    "Is it warmer in Oslo or in Rome?",
    "Search the folder src for the word retry.",
    "Divide 1000 by 7.",
    "Do I need an umbrella in Paris tomorrow?",
    "Which files in docs name the scheduler?",
)
TOOL_RESULT = '{"result": "12", "unit": "C"}'
"""Every call's result."""


def _tool(name: str, description: str, **properties: str) -> Mapping[str, object]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: Sequence[Mapping[str, object]] = (
    _tool("get_weather", "Return the weather of a city.", city="string", day="string"),
    _tool("search_files", "Return the files with a word.", folder="string", word="string"),
    _tool("calculate", "Return the value of an expression.", expression="string"),
)


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum or a difference, with its value."""

    question: str
    value: int

    def reward(self, answer: str) -> float:
        """Return 1 if the last whole number in an answer is the value, else 0.

        A number within a sentence counts, so that nothing is won by leaving the sentence out.
        """
        numbers: list[Any] = re.findall(r"-?\d+", answer)
        # An endless run of digits is no value, and Python refuses to read it.
        return float(bool(numbers) and len(numbers[-1]) < 9 and int(numbers[-1]) == self.value)


def sums(seed: int, step: int, count: int) -> list[Sum]:
    """Return a step's tasks: whole numbers up to 20, results of at least 0."""
    draw = random.Random(f"sums {seed} {step}")  # nosec B311 # repeatable draws
    return [_sum(draw) for _ in range(count)]


def _sum(draw: random.Random) -> Sum:
    larger, smaller = sorted((draw.randint(0, 20), draw.randint(0, 20)), reverse=True)
    if draw.random() < 0.5:
        return Sum(f"What is {smaller} + {larger}? Answer with the number only.", smaller + larger)
    return Sum(f"What is {larger} - {smaller}? Answer with the number only.", larger - smaller)
