"""A pipeline of transformations: each step is said in words, and its result is the next step's data."""

from typing import Any

from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code
from coderoom.sandbox import Sandbox

ORDERS = [
    {"customer": "Ada", "amount": "120.50 EUR", "state": "paid"},
    {"customer": "Grace", "amount": "80.00 EUR", "state": "cancelled"},
    {"customer": "Grace", "amount": "1,200.00 EUR", "state": "paid"},
    {"customer": "Ada", "amount": "79.50 EUR", "state": "open"},
]
STEPS = [
    "Leave out the cancelled orders.",
    "Make each amount a number of cents.",
    "Sum the cents by customer, as a dict.",
]


async def transform(data: Any, steps: list[str], model: ChatCompletionClient) -> Any:
    """Do one step after the other, all in one warm sandbox."""
    async with Sandbox(policy="restricted") as sandbox:
        for step in steps:
            answer = await execute_code(f"Do this to the data: {step}\n\nData: {data!r}", model=model, sandbox=sandbox)
            if not answer["success"]:
                raise RuntimeError(f"The step {step!r} failed: {answer['error']}")
            data = answer["result"]
            print(f"{step} {data}")
    return data


async def main(model: ChatCompletionClient) -> None:
    """Transform the orders."""
    await transform(ORDERS, STEPS, model)


if __name__ == "__main__":
    run(main, __file__)
