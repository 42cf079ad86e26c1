"""A LangChain agent that runs code.

It needs `pip install 'coderoom[langchain]' langchain langchain-openai` and a key.
"""

from langchain.agents import create_agent

from coderoom.integrations.langchain import CodeTool

with CodeTool() as tool:
    agent = create_agent("openai:gpt-5-mini", [tool])
    state = agent.invoke({"messages": [("user", "How many primes are there below a thousand?")]})
    print(state["messages"][-1].content)
