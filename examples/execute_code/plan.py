"""Plan, code, run: one agent thinks of a way, then code goes it."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code

PROBLEM = "On how many days from 2001-01-01 to 2100-12-31 does the 13th of a month fall on a Friday?"


async def main(model: ChatCompletionClient) -> None:
    """Ask for a plan, and for code that follows it."""
    planner = AssistantAgent(
        "planner", model, system_message="Plan in a few numbered steps how a Python program solves the task. No code."
    )
    plan = (await planner.run(task=PROBLEM)).messages[-1].to_text()
    print(f"Plan:\n{plan}\n")

    answer = await execute_code(f"{PROBLEM}\n\nFollow this plan:\n{plan}", model=model)
    if answer["success"]:
        print(f"Code:\n{answer['code']}\n\nResult: {answer['result']}")
    else:
        print(f"Error: {answer['error']}")


if __name__ == "__main__":
    run(main, __file__)
