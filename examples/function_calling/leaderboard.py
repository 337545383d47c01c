"""The Berkeley Function Calling Leaderboard: its tasks as files, its worlds and checker on request.

Runs with the Python of its own environment, which `scripts/leaderboard` makes:

    python leaderboard.py tasks DIRECTORY   write the files of tasks and of conversations
    python leaderboard.py serve             read a question a line, print an answer a line

Tasks, worlds and verdicts are the leaderboard's own code. Every fifth task, by the hash of its id,
is held back: it is never trained on.
"""

import hashlib
import json
import sys
from functools import cache
from itertools import islice
from pathlib import Path

from bfcl_eval.constants.enums import Language, ModelStyle
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.model_handler.utils import convert_to_tool
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry

SINGLE = ("simple_python", "multiple", "parallel", "live_simple", "live_multiple", "live_parallel")
MULTI_TURN = ("multi_turn_base",)
LIKE = "gpt-4.1-2025-04-14-FC"
"""A model of the leaderboard that is called as ours is: in names, dots are underscores."""
HELD_BACK = 64
"""Held-back tasks of a file: all of them would take hours on two cores."""
WARM_UP = 40
"""Conversations of the warm-up: enough to show the form of a call, too few to learn the tasks."""
WARM_UP_AMONG = 64
"""Tasks whose shortest conversations these are: they cost least."""


@cache
def entries(category):
    """Return the tasks of a category by id, each with its ground truth."""
    truths = {entry["id"]: entry["ground_truth"] for entry in load_ground_truth_entry(category)}
    tasks = load_dataset_entry(category)
    return {task["id"]: {**task, "ground_truth": truths[task["id"]]} for task in tasks}


def entry_of(task_id):
    """Return a task by its id: `live_simple_3-2-0` is of the category `live_simple`."""
    return entries(task_id.rsplit("_", 1)[0])[task_id]


def is_held_back(task_id):
    """Return whether a task is never trained on."""
    return hashlib.sha256(task_id.encode()).digest()[0] % 5 == 0


def task_of(entry):
    """Return the line of a task file: its turns, each a list of messages, and its tools."""
    tools = convert_to_tool(entry["function"], GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS)
    functions = [{**tool["function"]} for tool in tools]
    for function in functions:
        function.pop("response", None)  # documents what comes back; no model is shown it
    tools = [{"type": "function", "function": function} for function in functions]
    return {"id": entry["id"], "turns": entry["question"], "tools": tools}


def write_tasks(directory):
    """Write train and held-back tasks of both kinds, and the conversations of the warm-up."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, categories in (("single", SINGLE), ("multi_turn", MULTI_TURN)):
        # By hash, so that the first tasks of a file are of all categories.
        tasks = sorted(
            (task_of(entry) for category in categories for entry in entries(category).values()),
            key=lambda task: hashlib.sha256(task["id"].encode()).digest(),
        )
        trained = [task for task in tasks if not is_held_back(task["id"])]
        held_back = [task for task in tasks if is_held_back(task["id"])]
        write_lines(directory / f"{name}_train.jsonl", trained)
        write_lines(directory / f"{name}_held_back.jsonl", held_back[:HELD_BACK])
        if name == "single":
            conversations = filter(None, map(conversation_of, trained))
            among = list(islice(conversations, WARM_UP_AMONG))
            among.sort(key=lambda conversation: len(json.dumps(conversation)))
            write_lines(directory / "warm_up.jsonl", among[:WARM_UP])


def write_lines(file, lines):
    """Write a file of JSON lines, and say so."""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{len(lines):5} lines in {file}", file=sys.stderr)


def conversation_of(task):
    """Return a right conversation, or None if the checker refuses the first allowed values."""
    entry = entry_of(task["id"])
    calls = []
    for truth in entry["ground_truth"]:
        ((name, arguments),) = truth.items()
        calls.append({name.replace(".", "_"): chosen(arguments)})
    if not is_right(entry, calls):
        return None
    answer = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(values)},
            }
            for number, call in enumerate(calls)
            for name, values in call.items()
        ],
    }
    return {"messages": [*task["turns"][0], answer], "tools": task["tools"]}


def chosen(allowed):
    """Return the first allowed value of each argument, without those that may be left out."""
    lists = {key: values for key, values in allowed.items() if isinstance(values, list) and values}
    return {key: plain(values[0]) for key, values in lists.items() if values[0] != ""}


def plain(value):
    """Return a value in which dictionaries have values, not lists of allowed ones."""
    if isinstance(value, dict):
        return chosen(value)
    return [plain(item) for item in value] if isinstance(value, list) else value


def is_right(entry, calls):
    """Return the leaderboard's verdict on the calls of one answer, each `{name: arguments}`."""
    category = entry["id"].rsplit("_", 1)[0]
    truth = entry["ground_truth"]
    try:
        verdict = ast_checker(entry["function"], calls, truth, Language.PYTHON, category, LIKE)
    except (AttributeError, KeyError, TypeError):  # it fails on values of unforeseen types
        return False
    return bool(verdict["valid"])


def call_in_world(session, task_id, calls):
    """Execute calls, written as Python, in the session's own worlds; return their results."""
    entry = entry_of(task_id)
    results, _ = multi_turn_utils.execute_multi_turn_func_call(
        calls, entry["initial_config"], entry["involved_classes"], session, task_id
    )
    return results


def is_right_in_world(session, task_id, turns):
    """Return the leaderboard's verdict on all turns, each a list of answers with their calls."""
    entry = entry_of(task_id)
    try:
        return bool(multi_turn_checker(turns, entry["ground_truth"], entry, "", session)["valid"])
    finally:  # worlds are globals of that module, which nobody else removes
        for name in [name for name in vars(multi_turn_utils) if name.startswith(session)]:
            delattr(multi_turn_utils, name)


def answer_to(question):
    """Return the answer to a question of an agent."""
    if question["ask"] == "check":
        return is_right(entry_of(question["task"]), question["calls"])
    if question["ask"] == "call":
        return call_in_world(question["session"], question["task"], question["calls"])
    return is_right_in_world(question["session"], question["task"], question["turns"])


def serve():
    """Answer questions until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the leaderboard's code prints
    for line in sys.stdin:
        print(json.dumps(answer_to(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        write_tasks(Path(sys.argv[2]))
