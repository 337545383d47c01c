"""A judge: two rewards by name, from the task and what the agent returned.

`trainer.rewards` has their weights. A judge may call a model or run tests; one that fails leaves
its session without a reward, and the sample is tried again.
"""


def judge(task, result):
    answer = result["answer"]
    return {
        "rewards": {
            "right": 1.0 if str(task["key"]) in answer else 0.0,
            "brief": 1.0 if len(answer) <= 20 else 0.0,
        }
    }
