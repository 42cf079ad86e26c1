"""What tokens cost, by a table of list prices. Used by the summaries of runs."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from coderoom.configs.reading import Source, find_source, read_document
from coderoom.errors import ConfigError

PRICES_VARIABLE: Final = "CODEROOM_PRICES"
"""The variable with a file of the user's own prices."""

_VERSION: Final = re.compile(r"-(\d[\d-]*|latest)$")
"""The end of a name that only tells the version of a model, such as its date."""


def cost_of(model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
    """The price of tokens.

    Args:
        model: The name of the model; a provider before a slash and a version at the end need not be in the table.
        prompt_tokens: The tokens of the prompts.
        completion_tokens: The tokens of the completions.

    Returns:
        US dollars, or `None` if the model is not in the table.

    Raises:
        ConfigError: The user's table has mistakes; all of them are listed.
        RequestError: The user's table cannot be read.
    """
    prices = price_table()
    name = model.lower().rpartition("/")[2]
    price = prices.get(model) or prices.get(name) or prices.get(_VERSION.sub("", name))
    return None if price is None else (price[0] * prompt_tokens + price[1] * completion_tokens) / 1_000_000


def price_table() -> dict[str, tuple[float, float]]:
    """US dollars for a million tokens of prompt and of completion, by model; the user's prices replace the shipped.

    Raises:
        ConfigError: The user's table has mistakes; all of them are listed.
        RequestError: The user's table cannot be read.
    """
    own = os.environ.get(PRICES_VARIABLE)
    return _table(Path(own).absolute() if own else None)


@cache
def _table(own: Path | None) -> dict[str, tuple[float, float]]:
    shipped = resources.files("coderoom.configs").joinpath("prices.yaml").read_bytes()
    prices = _read(Source("prices.yaml", shipped))
    return prices | _read(find_source(own)) if own else prices


def _read(source: Source) -> dict[str, tuple[float, float]]:
    document = read_document(source)
    if not isinstance(document.data, dict):
        raise ConfigError([*document.problems, document.problem((), "expected a mapping of models to prices")])
    found = [((name,), f"expected {_FORM}") for name, value in document.data.items() if not _is_price(value)]
    if problems := [*document.problems, *document.distinct_problems(found)]:
        raise ConfigError(problems)
    return {name: (float(prompt), float(completion)) for name, (prompt, completion) in document.data.items()}


_FORM: Final = "the prices of a million tokens of prompt and of completion, as in [2.5, 10]"


def _is_price(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(type(each) in (int, float) and each >= 0 for each in value)
    )
