"""An agent that plays beside a recorded expert (UI-S1, arXiv 2509.11543: semi-online).

The environment is a recording: it can answer the expert's actions alone. So where the policy acts
otherwise, its message is replaced by the expert's, and the session goes on from there. Behind
`PATCHES` of them the next wrong turn ends the session. A patched message is prompt: it is never
trained. The policy's own wrong turn is trained, with its low reward.
"""

import json

from openai import AsyncOpenAI

PATCHES = 2
"""Most wrong turns of a session that the expert's message replaces."""
FORM, ACTION = 0.1, 0.9
"""Parts of a turn's reward: a call in the right form, and the right call."""
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "parameters": {"type": "object", "properties": {"key": {"type": "integer"}}},
    },
}


async def run(task, session, patches=PATCHES):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    messages = [{"role": "user", "content": task["question"]}]
    rewards = {}
    for number, (expert, result) in enumerate(zip(task["expert"], task["results"], strict=True)):
        answer = await client.chat.completions.create(
            model=session.model, messages=messages, tools=[LOOKUP], max_tokens=16
        )
        calls = [call.function for call in answer.choices[0].message.tool_calls or ()]
        rewards[answer.id] = FORM * form(calls) + ACTION * action(calls, expert)
        message = answer.choices[0].message.model_dump(exclude_none=True)
        if action(calls, expert) < 1:
            if not patches:
                break
            patches -= 1
            message = recorded(expert, number)
        reply = {"tool_call_id": message["tool_calls"][0]["id"], "content": result}
        messages += [message, {"role": "tool", **reply}]
    right = sum(reward == FORM + ACTION for reward in rewards.values())
    return {"reward": right / len(task["expert"]), "turn_rewards": rewards}


def form(calls):
    """Return 1 for one call whose arguments are a JSON object, else 0."""
    return float(len(calls) == 1 and isinstance(arguments(calls[0]), dict))


def action(calls, expert):
    """Return 1 for the expert's call, 0.5 for the same function, 0.1 for any other call, else 0."""
    if not calls:
        return 0.0
    if calls[0].name != expert["name"]:
        return 0.1
    return 1.0 if arguments(calls[0]) == expert["arguments"] and len(calls) == 1 else 0.5


def arguments(call):
    """Return the arguments of a call. What the model writes may be anything."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None


def recorded(expert, number):
    """Return the expert's message."""
    function = {"name": expert["name"], "arguments": json.dumps(expert["arguments"])}
    call = {"id": f"expert_{number}", "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}
