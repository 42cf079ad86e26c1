"""A deep agent of LangChain, whose commands and files are those of a sandbox.

It needs `pip install 'coderoom[deepagents]' langchain-openai` and a key.
"""

from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI

from coderoom.integrations.deepagents import CodeRoomBackend

with CodeRoomBackend(limits={"wall_seconds": 60}) as backend:
    agent = create_deep_agent(ChatOpenAI(model="gpt-5-mini", use_responses_api=False), backend=backend)
    question = {"messages": [("user", "Write a script that counts the primes below a thousand, and run it.")]}
    state = agent.invoke(question, {"configurable": {"thread_id": "1"}})
    print(state["messages"][-1].content)
