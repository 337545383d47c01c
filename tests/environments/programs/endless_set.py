"""A task set of verifiers without an end and without tools."""

import itertools

import verifiers.v1 as vf


class EchoTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def said(self, trace: vf.Trace) -> float:
        return float(bool(trace.last_reply))


class EndlessTaskset(vf.Taskset[EchoTask]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            yield EchoTask(vf.TaskData(prompt=f"Say {number}."), self.config.task)


__all__ = ["EndlessTaskset"]
