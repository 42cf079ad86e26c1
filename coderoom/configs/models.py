"""Makes model clients from short texts: `openai:gpt-4o`, `ollama:llama3.2`, `replay:FILE`, a file.

The package of a model service is imported when one of its models is made. `_util.services` describes the services.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from autogen_core.models import ChatCompletionClient

from coderoom._util.services import (
    DEFAULT_MODEL,
    MODEL_FORMS,
    MODEL_VARIABLE,
    REPLAY,
    SERVICES,
    UNKNOWN_MODEL,
    client_config,
    is_model_text,
    service_of,
)
from coderoom.configs.checking import check_config
from coderoom.configs.components import MODEL, how_to_install
from coderoom.configs.dumping import remember
from coderoom.configs.loading import build, examine
from coderoom.configs.reading import find_source, looks_like_path, read_document
from coderoom.configs.recorded import RecordedModel, ReplayModel, ReplayModelConfig, is_recording
from coderoom.configs.yaml import did_you_mean
from coderoom.errors import MissingDependencyError, RequestError


def make_model(spec: str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()) -> ChatCompletionClient:
    """Make a model client.

    Args:
        spec: `openai:NAME`, `azure:DEPLOYMENT`, `anthropic:NAME`, `ollama:NAME`, `gemini:NAME`, `openrouter:NAME`,
            `vllm:NAME`, `http://HOST/v1#NAME` for any server with OpenAI's protocol, `replay:FILE`, or a path to a YAML
            or JSON file that holds one model component.
        env: The variables with keys and addresses; by default the environment.
        trust: Namespaces whose providers a file may name, besides `autogen_*` and `coderoom`.

    Returns:
        The client.

    Raises:
        RequestError: The text has none of these forms, or the file is not there.
        ConfigError: The file has mistakes.
        MissingDependencyError: A package is not installed, or a key is not set.
    """
    env = os.environ if env is None else env
    if spec.startswith(f"{REPLAY}:"):
        return _replay(spec)
    if service_of(spec) is not None:
        return _client(spec, env)
    if looks_like_path(spec):
        # A file that refers to the variable with its own name would be read without end.
        inside = {name: value for name, value in env.items() if name != MODEL_VARIABLE}
        checked = examine(find_source(spec), MODEL, trust, inside)
        checked.refuse_mistakes()
        made = partial(make_model, env=inside, trust=trust)
        client = build(checked, ChatCompletionClient, made)  # type: ignore[type-abstract]
        remember(client, checked)
        return client
    prefix, colon, _ = spec.partition(":")
    hint = did_you_mean(f"{prefix}:", [*(f"{known}:" for known in SERVICES), f"{REPLAY}:"]) if colon else ""
    if spec and not colon:
        hint = f"; did you mean 'openai:{spec}'?"
    expected = f"{hint} Expected" if hint else "; expected"
    raise RequestError(f"there is no model {spec!r}{expected} {MODEL_FORMS}")


def resolve_model(
    model: ChatCompletionClient | str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()
) -> ChatCompletionClient:
    """Return a model client, or make one from a text.

    Args:
        model: A client, or a text that `make_model` understands.
        env: As for `make_model`.
        trust: As for `make_model`.

    Raises:
        RequestError: It is neither, or as `make_model`.
        ConfigError: As `make_model`.
        MissingDependencyError: As `make_model`.
    """
    if isinstance(model, str):
        return make_model(model, env=env, trust=trust)
    if not isinstance(model, ChatCompletionClient):
        raise RequestError(f"expected a model client or a text such as 'openai:gpt-4o', got {model!r}")
    return model


def default_model(env: Mapping[str, str] | None = None) -> str:
    """The model to use if none is given.

    Args:
        env: The variables; by default the environment.

    Returns:
        A text for `make_model`: the value of `CODEROOM_MODEL`, which may be just the name of an OpenAI model, as in the
        shipped teams; else `openai:gpt-4o`.
    """
    named = (os.environ if env is None else env).get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL
    # The name of an OpenAI model may have colons and slashes.
    return named if is_model_text(named) else f"openai:{named}"


def _client(spec: str, env: Mapping[str, str]) -> ChatCompletionClient:
    """The client of a service."""
    found = service_of(spec)
    assert found is not None
    module, _, name = found[0].provider.rpartition(".")
    try:
        client_class: Any = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingDependencyError(f"the model {spec!r} cannot be used: {how_to_install(error)}") from error
    config = client_config(spec, env)
    try:
        client: Any = client_class(**config)
    except ValueError as error:
        if "model_info" not in str(error):
            raise RequestError(f"the model {spec!r} was refused: {error}") from error
        client = client_class(**config, model_info=dict(UNKNOWN_MODEL))
    if found[0].package == "openai":
        # A service reports the token usage of a stream only on request, and AutoGen's assistant does not request it.
        client.create_stream = partial(client.create_stream, include_usage=True)
    return cast("ChatCompletionClient", client)


def _replay(spec: str) -> ChatCompletionClient:
    name = spec.partition(":")[2].strip()
    if not name:
        raise RequestError(f"the model {spec!r} names nothing after the colon; expected {MODEL_FORMS}")
    if is_recording(Path(name)):
        return RecordedModel(name)
    document = read_document(find_source(name if looks_like_path(name) else f"./{name}"))
    if isinstance(document.data, list):
        document = document.under("replies")
    checked = check_config(document, ReplayModelConfig)
    checked.refuse_mistakes()
    config = ReplayModelConfig.model_validate({"name": Path(name).name, **checked.data})
    return ReplayModel(config.replies, config.model_info, name=config.name)
