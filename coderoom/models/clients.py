"""Makes AutoGen's client of a model service."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from autogen_core.models import ChatCompletionClient

from coderoom._util.autogen import accept_other_names, wants_model_info
from coderoom.models.names import is_openai
from coderoom.models.services import UNKNOWN_MODEL


def make_client(provider: str, config: Mapping[str, Any]) -> ChatCompletionClient:
    """Make a client; of a model that AutoGen does not know, the usual abilities are assumed.

    Raises:
        ImportError: Its package is not installed.
        ValueError: It refuses its config.
    """
    module, _, name = provider.rpartition(".")
    client_class: Any = getattr(importlib.import_module(module), name)
    try:
        client = client_class(**config)
    except ValueError as error:
        if not wants_model_info(error):
            raise
        client = client_class(**config, model_info=dict(UNKNOWN_MODEL))
    accept_other_names(client)
    if is_openai(client):
        # A service reports the token usage of a stream only on request, and AutoGen's assistant does not request it.
        client.create_stream = partial(client.create_stream, include_usage=True)
    made: ChatCompletionClient = client
    return made
