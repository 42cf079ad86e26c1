"""Iterative refinement: code that fails, and an answer that does not fit, go back with what is wrong about them.

`execute_code` shows a model its own errors by itself (`max_retries`). A loop like this one adds what only the caller
knows: what the answer has to look like.
"""

from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code

READINGS = ["2024-01-31", "2024-02-29", "31.03.2024", "2024-04-30", "2024-06-15"]
PROBLEM = f"The days of a meter's readings are {READINGS}. What is the longest gap between two of them, in days?"


async def solve(problem: str, model: ChatCompletionClient, rounds: int = 4) -> int:
    """Ask until the answer is a number of days."""
    prompt = problem
    for number in range(1, rounds + 1):
        answer = await execute_code(prompt, model=model, max_retries=0)
        complaint = answer["error"]
        if answer["success"]:
            if isinstance(answer["result"], int):
                return answer["result"]
            complaint = f"The result was {answer['result']!r}, and a whole number is wanted."
        print(f"Round {number}: {complaint}")
        prompt = f"{problem}\n\nThis code was tried:\n{answer['code']}\n\nWhat is wrong with it: {complaint}"
    raise RuntimeError(f"no answer in {rounds} rounds")


async def main(model: ChatCompletionClient) -> None:
    """Solve it, and tell the answer."""
    print(f"The longest gap is {await solve(PROBLEM, model)} days.")


if __name__ == "__main__":
    run(main, __file__)
