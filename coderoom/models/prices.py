"""What tokens cost, by a table of list prices. Used by budgets and the summaries of runs."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from coderoom.errors import ConfigError, Problem, RequestError

PRICES_VARIABLE: Final = "CODEROOM_PRICES"
"""The variable with a file of the user's own prices."""

_VERSION: Final = re.compile(r"-(\d[\d-]*|latest)$")
"""The end of a name that only tells the version of a model, such as its date."""


_SERVICES: Final = (
    "openai.com",
    "azure.com",
    "anthropic.com",
    "googleapis.com",
    "llama.com",
    "openrouter.ai",
    "mistral.ai",
    "deepseek.com",
    "x.ai",
)
"""The domains of the services whose prices the table has."""


def priced_as(model_client: Any) -> str:
    """The name of a client's model for `cost_of`, after its server if that is not one of the services in the table."""
    from coderoom.models.names import address_of, model_name_of

    name, host = model_name_of(model_client), urlsplit(address_of(model_client)).netloc.rpartition("@")[2]
    domain = host.partition(":")[0]
    known = not domain or any(domain == service or domain.endswith(f".{service}") for service in _SERVICES)
    return name if known else f"{host}#{name}"


def cost_of(model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
    """The price of tokens in US dollars; `None` if the model is not in the table.

    A provider before a slash and a version at the end of its name need not be in the table. A model of another server,
    as `priced_as` names it, has a price only in the user's file.
    """
    server, _, model = model.rpartition("#")
    prices = price_table(with_shipped=not server)
    name = model.lower().rpartition("/")[2]
    price = prices.get(model) or prices.get(name) or prices.get(_VERSION.sub("", name))
    return None if price is None else (price[0] * prompt_tokens + price[1] * completion_tokens) / 1_000_000


def price_table(*, with_shipped: bool = True) -> dict[str, tuple[float, float]]:
    """US dollars for a million tokens of prompt and of completion, by model; the user's prices replace the shipped."""
    own = os.environ.get(PRICES_VARIABLE)
    return _table(Path(own).absolute() if own else None, with_shipped)


# The package genai-prices has the same prices for 53 of our 57 models, lacks two, and has off-peak prices for two; its
# import takes 0.12 s and 1.7 MiB. So the table is ours.
@cache
def _table(own: Path | None, with_shipped: bool) -> dict[str, tuple[float, float]]:
    prices: dict[str, tuple[float, float]] = {}
    if with_shipped:
        prices = _read("prices.yaml", resources.files("coderoom.models").joinpath("prices.yaml").read_text("utf-8"))
    if own is None:
        return prices
    try:
        return prices | _read(str(own), own.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"The prices in {str(own)!r} cannot be read: {error.strerror}.") from error


def _read(name: str, text: str) -> dict[str, tuple[float, float]]:
    try:
        data: Any = YAML().load(text)
    except YAMLError as error:
        raise ConfigError([Problem(" ".join(str(error).split()), name)]) from error
    if not isinstance(data, dict):
        raise ConfigError([Problem("expected a mapping of models to prices", name)])
    wrong = [
        model
        for model, value in data.items()
        if not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(each, int | float) and not isinstance(each, bool) and each >= 0 for each in value)
    ]
    if wrong:
        message = "expected the prices of a million tokens of prompt and of completion, as in [2.5, 10]"
        place: Any = getattr(data, "lc", None)
        raise ConfigError([Problem(message, name, place.key(model)[0] + 1, str(model)) for model in wrong])
    return {str(model): (float(prompt), float(completion)) for model, (prompt, completion) in data.items()}
