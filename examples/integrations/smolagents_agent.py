"""A CodeAgent of smolagents whose code runs in the sandbox, and whose tool runs here.

It needs `pip install 'coderoom[smolagents]' openai` and a key.
"""

from smolagents import CodeAgent, OpenAIModel, tool

from coderoom.integrations.smolagents import SandboxExecutor


@tool
def limit_of(name: str) -> int:
    """Look up how far to count.

    Args:
        name: The name of the limit.
    """
    return {"thousand": 1000}[name]


with SandboxExecutor() as executor:
    agent = CodeAgent(
        tools=[limit_of],
        model=OpenAIModel("gpt-5-mini"),
        executor=executor,
        additional_authorized_imports=["*"],
    )
    print(agent.run("How many primes are there below the limit named 'thousand'?"))
