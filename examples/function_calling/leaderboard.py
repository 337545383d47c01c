"""The Berkeley Function Calling Leaderboard: its tasks as files, its worlds and checker on request.

Runs with the Python of its own environment, which `scripts/leaderboard` makes:

    python leaderboard.py tasks DIRECTORY   write the files of tasks and of conversations
    python leaderboard.py serve             read a question a line, print an answer a line

Tasks, worlds and verdicts are the leaderboard's own code. Every fifth task, by the hash of its id,
is held back: it is never trained on.
"""

import ast
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
FUNCTIONS = 22
"""Most functions of a task of several turns: with all 39 a prompt has 5,500 tokens, so 3,300."""
MULTI_TURN_WARM_UP = 32
"""Most conversations of several turns. With half as many, hardly a session got a turn right."""


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
    """Return the line of a task file: its turns, each a list of messages, its tools and worlds."""
    tools = convert_to_tool(entry["function"], GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS)
    functions = [{**tool["function"]} for tool in tools]
    for function in functions:
        function.pop("response", None)  # documents what comes back; no model is shown it
    tools = [{"type": "function", "function": function} for function in functions]
    worlds = entry.get("involved_classes", [])
    return {"id": entry["id"], "turns": entry["question"], "tools": tools, "worlds": worlds}


def write_tasks(directory):
    """Write train and held-back tasks of both kinds, and the conversations of their warm-ups."""
    directory.mkdir(parents=True, exist_ok=True)
    trained, held_back = tasks_of(SINGLE)
    among = islice(filter(None, map(conversation_of, trained)), WARM_UP_AMONG)
    conversations = sorted(among, key=lambda conversation: len(json.dumps(conversation)))
    write_lines(directory / "warm_up.jsonl", conversations[:WARM_UP])
    write_lines(directory / "single_train.jsonl", trained)
    write_lines(directory / "single_held_back.jsonl", held_back[:HELD_BACK])

    trained, held_back = (
        [task for task in tasks if len(task["tools"]) <= FUNCTIONS]
        for tasks in tasks_of(MULTI_TURN)
    )
    played = islice(filter(None, map(played_conversation, trained)), MULTI_TURN_WARM_UP)
    write_lines(directory / "multi_turn_warm_up.jsonl", played)
    write_lines(directory / "multi_turn_train.jsonl", trained)
    write_lines(directory / "multi_turn_held_back.jsonl", held_back[:HELD_BACK])


def tasks_of(categories):
    """Return the tasks to train on and those held back, both of mixed categories."""
    tasks = sorted(
        (task_of(entry) for category in categories for entry in entries(category).values()),
        key=lambda task: hashlib.sha256(task["id"].encode()).digest(),
    )
    held_back = [task for task in tasks if is_held_back(task["id"])]
    return [task for task in tasks if not is_held_back(task["id"])], held_back


def write_lines(file, lines):
    """Write a file of JSON lines, and say so."""
    lines = list(lines)
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
    pairs = [pair for call in calls for pair in call.items()]
    return conversation_with(task, [*task["turns"][0], answer_with(pairs)])


def conversation_with(task, messages):
    """Return a line of a warm-up's file."""
    return {**task, "messages": messages}


def answer_with(calls, first=0):
    """Return the answer of a model that makes these calls, each a name and its arguments."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(values)},
            }
            for number, (name, values) in enumerate(calls, first)
        ],
    }


def played_conversation(task):
    """Return all turns of a task with the right calls and what its worlds say, or None.

    Each call is an answer by itself, so that the next one may use its result. There is none for a
    task whose calls name no arguments, or which the checker refuses.
    """
    truth = entry_of(task["id"])["ground_truth"]
    messages = []
    for said, calls in zip(task["turns"], truth, strict=True):
        messages += said
        for call in calls:
            pair = name_and_arguments(call)
            if pair is None:
                return None
            (result,) = call_in_world("played", task["id"], [call])
            answer = answer_with([pair], first=len(messages))
            (made,) = answer["tool_calls"]
            messages += [answer, {"role": "tool", "tool_call_id": made["id"], "content": result}]
        messages.append({"role": "assistant", "content": "Done."})
    answers = [[[call] for call in calls] for calls in truth]
    accepted = right_in_world("played", task["id"], answers)
    end_worlds("played")
    return conversation_with(task, messages) if accepted else None


def name_and_arguments(call):
    """Return name and arguments of a call written as Python, or None if it has unnamed ones."""
    tree = ast.parse(call, mode="eval").body
    if tree.args:
        return None
    return tree.func.id, {word.arg: ast.literal_eval(word.value) for word in tree.keywords}


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


def right_in_world(session, task_id, turns):
    """Return the leaderboard's verdict on the first turns, each a list of answers with calls.

    The checker plays them again, in worlds of its own.
    """
    entry = entry_of(task_id)
    truth = entry["ground_truth"][: len(turns)]
    checked = f"check_{session}"
    try:
        return bool(multi_turn_checker(turns, truth, entry, "", checked)["valid"])
    finally:
        end_worlds(checked)


def end_worlds(session):
    """Remove the worlds of a session: globals of that module, which nobody else removes."""
    for name in [name for name in vars(multi_turn_utils) if name.startswith(session)]:
        delattr(multi_turn_utils, name)


def answer_to(question):
    """Return the answer to a question of an agent."""
    if question["ask"] == "check":
        return is_right(entry_of(question["task"]), question["calls"])
    if question["ask"] == "call":
        return call_in_world(question["session"], question["task"], question["calls"])
    if question["ask"] == "turns":
        return right_in_world(question["session"], question["task"], question["turns"])
    return end_worlds(question["session"])


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
