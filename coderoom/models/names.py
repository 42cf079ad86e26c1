"""What is known of a model client: the client that sends, its config, its server, and the name of its model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


def is_openai(model_client: Any) -> bool:
    """Whether a client is one of OpenAI's protocol."""
    # By name, since the import is slow and often not needed.
    kinds = type(innermost_client(model_client)).__mro__
    return any(kind.__module__.startswith("autogen_ext.models.openai") for kind in kinds)


def innermost_client(model_client: Any) -> Any:
    """The client that sends the requests, if others are wrapped around it, such as a cache or a rate limit."""
    while hasattr(inner := getattr(model_client, "client", None), "model_info"):
        model_client = inner
    return model_client


def config_of(client: Any) -> Mapping[str, Any]:
    """A client's config; empty if it has none."""
    with suppress(Exception):  # Not every client has a config.
        config: Mapping[str, Any] = client.dump_component().config
        return config
    return {}


def address_of(model_client: Any) -> str:
    """The address of the server that a client asks; empty if that is not known."""
    client = innermost_client(model_client)
    config = config_of(client)
    default = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1" if is_openai(client) else ""
    return str(config.get("base_url") or config.get("azure_endpoint") or config.get("host") or default)


def model_name_of(model_client: Any) -> str:
    """The name of a client's model; clients have no common attribute for it."""
    client = innermost_client(model_client)
    name = config_of(client).get("model")
    if isinstance(name, str):
        return name
    if recording := getattr(client, "recording", None):
        return f"replay:{recording}"
    return f"{type(client).__name__}:{client.model_info.get('family', 'unknown')}"
