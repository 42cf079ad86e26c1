"""A calculator that takes expressions as people write them, and never computes in its head."""

from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code

EXPRESSIONS = ["(5 + 3) * 2 - 10", "1500 at 3.2 % a year, compounded monthly, after 7 years", "1 / (3 - 3)"]


async def calculate(expression: str, model: ChatCompletionClient) -> float:
    """Compute an expression; ValueError if that cannot be done."""
    answer = await execute_code(f"Calculate: {expression}", model=model, max_retries=0)
    if not answer["success"]:
        raise ValueError(answer["error"])
    if not isinstance(answer["result"], int | float):
        raise ValueError(f"{answer['result']!r} is no number")
    return float(answer["result"])


async def main(model: ChatCompletionClient) -> None:
    """Compute all expressions."""
    for expression in EXPRESSIONS:
        try:
            print(f"{expression}: {await calculate(expression, model):.2f}")
        except ValueError as error:
            print(f"{expression}: {error}")


if __name__ == "__main__":
    run(main, __file__)
