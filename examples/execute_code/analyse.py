"""A question about data: the annual flow of the Nile at Aswan from 1871 to 1970, ten years at a time.

The code sees no files, so what it is to look at goes into the prompt, as JSON.
"""

import csv
import json
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient
from chosen_model import run

from coderoom import execute_code

NILE = Path(__file__).parents[1] / "nile.csv"


def decades() -> list[dict[str, int]]:
    """The sum of the flow (in 10^8 m^3) by decade."""
    with NILE.open(newline="", encoding="utf-8") as file:
        flow = [int(row["flow"]) for row in csv.DictReader(file)]
    return [{"first_year": 1871 + start, "flow": sum(flow[start : start + 10])} for start in range(0, len(flow), 10)]


async def analyse(data: list[dict[str, Any]], question: str, model: ChatCompletionClient) -> Any:
    """Answer a question about rows of data; `None` if no code could."""
    answer = await execute_code(f"Dataset: {json.dumps(data)}\n\nAnswer about the dataset: {question}", model=model)
    return answer["result"] if answer["success"] else None


async def main(model: ChatCompletionClient) -> None:
    """Ask about the Nile."""
    question = "Which decade had the lowest flow, and by how many percent was it below the mean of all decades?"
    print(await analyse(decades(), question, model))


if __name__ == "__main__":
    run(main, __file__)
