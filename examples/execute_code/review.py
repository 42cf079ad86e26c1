"""Code and review: what answered the question is read by somebody else. Only code that ran well is reviewed."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code
from coderoom.blocks import fence

PROBLEM = "What is the sum of all primes below 10000?"


async def main(model: ChatCompletionClient) -> None:
    """Let one agent code and another one review."""
    answer = await execute_code(PROBLEM, model=model)
    if not answer["success"]:
        raise SystemExit(f"Error: {answer['error']}")
    print(f"Result: {answer['result']}")

    reviewer = AssistantAgent(
        "reviewer", model, system_message="Review Python code for correctness, speed and good ways, in a few sentences."
    )
    task = f"{PROBLEM}\n\n{fence(answer['code'], 'python')}\n\nIt gave {answer['result']!r}."
    print(f"Review: {(await reviewer.run(task=task)).messages[-1].to_text()}")


if __name__ == "__main__":
    run(main, __file__)
