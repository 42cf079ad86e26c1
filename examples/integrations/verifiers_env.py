"""An environment of Verifiers: tasks with tests, a tool that runs code, and a reward that the code cannot fool.

It needs `pip install 'coderoom[verifiers]'` and a key of an endpoint with OpenAI's protocol.
"""

import asyncio
import os

import verifiers.v1 as vf

from coderoom.integrations.verifiers import CodeTaskConfig, CodeToolset, TestedData, passed

QUESTION = "Write the function {}. You may try it with run_code. Answer with one block of Python."


class Function(vf.Task[TestedData, vf.State, CodeTaskConfig]):
    """Write a function."""

    @classmethod
    def toolsets(cls, config: CodeTaskConfig) -> list[vf.Toolset]:
        """Offer `run_code`, in a session for each rollout."""
        return [CodeToolset(config.tools)]

    @vf.reward
    async def passed(self, trace: vf.Trace) -> float:
        """Judge the answer's code by the tests of the task."""
        return await passed(self.data, trace)


class Functions(vf.Taskset[Function, vf.TasksetConfig]):
    """Two small functions."""

    def load(self) -> list[Function]:
        """The tasks."""
        tests = {
            "twice(n)": ["assert twice(2) == 4", "assert twice(-1) == -2"],
            "last(xs)": ["assert last([1, 2]) == 2"],
        }
        return [
            Function(TestedData(idx=number, prompt=QUESTION.format(name), tests=tests[name]))
            for number, name in enumerate(tests)
        ]


async def main() -> None:
    """Give each task to a model once."""
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    client = vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY")
    config = vf.AgentConfig(model="gpt-5-mini", client=client, harness={"id": "null"}, runtime=vf.SubprocessConfig())
    async with vf.make_agent(config) as agent:
        for task in Functions(vf.TasksetConfig()).load():
            trace = await agent.run(task)
            print(task.data.prompt.partition(".")[0], trace.reward, trace.last_error or "")


asyncio.run(main())
