"""An agent of Pydantic AI that runs code. It needs `pip install 'coderoom[pydantic-ai]' 'pydantic-ai-slim[openai]'`.

And a key of OpenAI, or another model.
"""

from pydantic_ai import Agent

from coderoom.integrations.pydantic_ai import CodeToolset

agent = Agent("openai-chat:gpt-5-mini", toolsets=[CodeToolset()])
print(agent.run_sync("How many primes are there below a thousand?").output)
