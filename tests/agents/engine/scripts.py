"""The policy of these tests: scripts of answers, chosen by what a prompt says. No state.

A task names its script, `[script adding]`, and the engine answers with the script's lines in order,
one a turn. How many it has given is counted in the prompt, so a repeated request gets the same
line. `[script repair in /some/place]` names a directory, `PLACE` in the lines. `AGENT` is the id of
the last sub-agent that a tool started. A prompt without a script (a title, a summary) gets `ASIDE`.

Lines are written as a Qwen3 samples them, with tool calls and thinking.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

ASIDE = "A short answer."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""By this command mini-swe-agent knows that the model is done."""

PLACE = "{place}"
AGENT = "{agent}"
_AGENT_ID = re.compile(r'"agent_id": ?"([^"]+)"')
_NAMED = re.compile(r"\[script ([a-z-]+)(?: in ([^]]+))?\] ")
_ASSISTANT = "<|im_start|>assistant"


def cue(script: str, place: Path | None = None) -> str:
    """Return the words that begin a task and name its script."""
    return f"[script {script}] " if place is None else f"[script {script} in {place}] "


def line(prompt: str, scripts: Mapping[str, Sequence[str]]) -> str:
    """Return the answer to a rendered prompt, which ends where the assistant's message begins.

    Raises KeyError for an unknown script, IndexError if it has no further line.
    """
    named = _NAMED.search(prompt)
    if named is None:
        return ASIDE
    said = prompt.count(_ASSISTANT, named.end()) - 1
    agents = _AGENT_ID.findall(prompt) or [""]
    return scripts[named[1]][said].replace(PLACE, named[2] or "").replace(AGENT, agents[-1])


def answer(script: str) -> str:
    """Return what an agent shows its user at the end of the script."""
    return SCRIPTS[script][-1].rpartition("</think>")[2].strip()


def call(name: str, **arguments: object) -> str:
    """Return a tool call as a Qwen3 writes it."""
    spelt = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{spelt}\n</tool_call>"


def keys(typed: str = "", wait_s: float = 0.2, done: bool = False) -> str:
    """Return what Harbor's Terminus 2 reads: keys to type, and whether the task is done."""
    commands = [{"keystrokes": typed, "duration": wait_s}] if typed else []
    parts = {"analysis": "a", "plan": "p", "commands": commands, "task_complete": done}
    return json.dumps(parts)


def thought(text: str) -> str:
    """Return thinking, which stands before an answer."""
    return f"<think>\n{text}\n</think>\n\n"


_ADDING = [
    thought("I can have it added.") + "Let me see.\n" + call("add", a=2, b=3),
    call("add", a=5, b=4) + "\n" + call("add", a=1, b=1),
    thought("Nine, and two.") + "The sum is 9, fünf und vier: ✓.",
]

_FIX = "sed -i 's/a - b/a + b/' calc.py"
_PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: calc.py
@@
 def add(a, b):
-    return a - b
+    return a + b
*** End Patch
EOF"""
_TEST = "python -m pytest -q"
_REPAIRED = "It subtracted. Now it adds, and the test passes."


def _claude_code(**edit: object) -> list[str]:
    calc = f"{PLACE}/calc.py"
    return [
        thought("First look.") + "I look at the code.\n" + call("Read", file_path=calc),
        thought("It subtracts.") + call("Edit", file_path=calc, **edit),
        "Do the tests pass?\n" + call("Bash", command=_TEST, description="Runs the tests"),
        thought("They do.") + _REPAIRED,
    ]


SCRIPTS: Mapping[str, Sequence[str]] = {
    "adding": _ADDING,
    "at-once": [
        thought("I can have it added.")
        + "Let me see.\n"
        + call("add", a=5, b=4)
        + "\n"
        + call("add", a=1, b=1)
    ],
    # Behind the opening of a call that `tool_choice` forces; the third and fourth are free.
    "forced": ['{"a": 2, "b": 3}}\n</tool_call>', *['{"a": 5, "b": 4}}\n</tool_call>'] * 3],
    "mini-swe-agent": [
        thought("First look.") + "I look at the code.\n" + call("bash", command="cat calc.py"),
        "It subtracts.\n" + call("bash", command=_FIX),
        "Do the tests pass?\n" + call("bash", command=_TEST),
        "They do.\n" + call("bash", command=SUBMIT),
    ],
    "codex": [
        thought("First look.") + "I look at the code.\n" + call("exec_command", cmd="cat calc.py"),
        thought("It subtracts.") + call("exec_command", cmd=_PATCH),
        "Do the tests pass?\n" + call("exec_command", cmd=_TEST),
        thought("They do.") + _REPAIRED,
    ],
    "claude-code": _claude_code(old_string="a - b", new_string="a + b"),
    "claude-code-wordy": _claude_code(old_string="a - b", new_string="a + b", replace_all=False),
    "claude-code-delegating": [
        "A sub-agent repairs it.\n"
        + call(
            "Agent",
            description="Repairs calc.py",
            prompt=cue("claude-code-wordy", Path(PLACE)) + "Repair calc.py.",
            subagent_type="general-purpose",
            run_in_background=False,
        ),
        _REPAIRED,
    ],
    "claude-code-searching": [
        call("ToolSearch", query="select:TaskStop"),
        call("TaskStop", task_id="none"),
        _REPAIRED,
    ],
    # Of environments (`tests/environments`).
    "answer": ["I think it is <answer>5</answer>."],
    "blackjack": ["I take a card: [Hit]", *["Enough. [Stand]"] * 40],
    "lake": ["Down, 1.", "1", "Right: 2", "1", "2", "2"],
    "sums": [thought("Add them.") + call("ledger_add", first=2, second=3), "2 and 3 make 5."],
    "counting": ["Two first.\n" + call("act", amount=2), call("act", amount=3)],
    "calling": ["Two first.\n" + call("add", amount=2), call("add", amount=3)],
    "summing": [thought("Add them.") + call("add", a=2, b=3), "The sum is 5"],
    "terminus": [
        thought("First look.") + keys("cat calc.py\n"),
        thought("It subtracts.") + keys(f"{_FIX}\n"),
        keys(done=True),
        keys(done=True),
    ],
    "incrementing": ["Three.\n" + call("increment_counter", count=3), "Done."],
    "leaving": [call("act", amount=2), call("act", amount=-1)],
    "wandering": [call("act", count="many"), "I am tired.", call("act", amount=5)],
    "codex-delegating": [
        "A sub-agent repairs it.\n"
        + call("multi_agent_v1__spawn_agent", message=cue("codex") + "Repair calc.py."),
        call("multi_agent_v1__wait_agent", targets=[AGENT], timeout_ms=60_000),
        _REPAIRED,
    ],
}
