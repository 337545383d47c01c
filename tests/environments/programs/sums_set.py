"""A task set of verifiers: sums, with a tool that adds, in a server of its own an episode."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    total: int


class Ledger(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "ledger"

    @vf.tool
    async def add(self, first: int, second: int) -> str:
        """Add two numbers."""
        return str(first + second)


class SumTask(vf.Task[SumData]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Ledger(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        if self.data.total == 0:
            raise ValueError("the scorer is broken")
        return float(str(self.data.total) in (trace.last_reply or ""))

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply or "") < 50)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class SumsTaskset(vf.Taskset[SumTask]):
    def load(self):
        for total in (5, 7, 0):
            prompt = f"[script sums] Which two numbers have the sum {total}?"
            yield SumTask(SumData(prompt=prompt, total=total), self.config.task)


__all__ = ["SumsTaskset"]

if __name__ == "__main__":
    Ledger.run()
