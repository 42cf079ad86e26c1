"""An agent of the OpenAI Agents SDK that runs code. It needs `pip install 'coderoom[openai-agents]'` and a key."""

from agents import Agent, Runner, set_default_openai_api

from coderoom.integrations.openai_agents import code_tool

set_default_openai_api("chat_completions")  # For servers that do not speak OpenAI's newer protocol.

with code_tool() as tool:
    agent = Agent("coder", model="gpt-5-mini", tools=[tool])
    result = Runner.run_sync(agent, "How many primes are there below a thousand?")
    print(result.final_output)
