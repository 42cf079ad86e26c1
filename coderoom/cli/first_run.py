"""Asks a person for a model service and its key, at the first run without one and for `coderoom models --setup`."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from coderoom._util.distribution import install_command
from coderoom._util.text import visible
from coderoom.cli import app
from coderoom.cli.app import typer
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.models.services import MODEL_VARIABLE, SERVICES, Service

_NAMES: Final = ("openai", "anthropic", "gemini", "openrouter", "ollama", "http")
_WORDS: Final = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "gemini": "Google Gemini",
    "openrouter": "OpenRouter",
    "ollama": "Ollama, on this machine",
    "http": "another server with OpenAI's protocol, such as vLLM, llama.cpp or LM Studio",
}
_TRIES: Final = 3
_SECONDS: Final = 10.0


def may_ask() -> bool:
    """Whether somebody is there to be asked, and has not named a model."""
    names_model = any(word.startswith(("-m", "--model")) for word in sys.argv[1:])
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stderr.isatty()
        and not names_model
        and not os.environ.get(MODEL_VARIABLE)
    )


def set_up_model() -> bool:
    """Ask for a service, its key and a model, which is the default from now on; return whether there is one."""
    _say("Which service shall answer?")
    for number, name in enumerate(_NAMES, 1):
        _say(f"  {number}  {_WORDS[name]}")
    while chosen := _ask("Number, or nothing to leave it"):
        if chosen in map(str, range(1, len(_NAMES) + 1)):
            break
        _say(f"There is no service {chosen!r}.")
    else:
        return False
    service = SERVICES[_NAMES[int(chosen) - 1]]
    if find_spec(service.package) is None:
        raise MissingDependencyError(f"{_WORDS[service.name]} needs a package: {install_command(service.package)}")
    address = _ask_address() if service.name == "http" else ""
    names: list[str] = []
    key = ""
    for left in reversed(range(_TRIES)):
        key = _ask_key(service)
        try:
            names = _models_at(service, address, key)
            break
        except PermissionError:
            _say("The service does not accept this key." + (" Once more:" if left else ""))
    else:
        return False
    if names and len(names) <= 20:
        _say(f"It has {', '.join(names)}.")
    usual = service.example if service.example in names else names[0] if names else ""
    name = ""
    while not name:
        name = _ask(f"Model{f' [{usual}]' if usual else ''}") or usual
    if names and name not in names:
        _say(f"The service does not list {name!r}; it is tried all the same.")
    _keep(service, key, f"{address}#{name}" if address else f"{service.name}:{name}")
    return True


def _keep(service: Service, key: str, model: str) -> None:
    """Make a model the default, now and later, and keep its key where the person says."""
    from coderoom.configs.user_config import read_user_config, save_in_user_config
    from coderoom.models.keys import keep_key, why_no_keyring

    values = {"model": model}
    variable = service.variables.get("api_key", "")
    if key:
        os.environ[variable] = key
        is_kept, why_not = False, why_no_keyring()
        if not why_not and _ask("Keep the key in the system's keyring? [Y/n]").lower() in ("", "y", "yes"):
            try:
                keep_key(variable, key)
                is_kept = True
            except MissingDependencyError as error:
                why_not = str(error)
        if is_kept:
            known = read_user_config().get("keyring", "").replace(",", " ").split()
            values["keyring"] = ", ".join(dict.fromkeys([*known, variable]))
            _say("The key is in the keyring.")
        else:
            _say(f"The key is kept nowhere{f': {why_not}' if why_not else ''}.")
            _say(f"To have it next time, set {variable} in the environment, or in a file for --env-file.")
    os.environ[MODEL_VARIABLE] = model
    _say(f"The default model is {model} from now on: {save_in_user_config(values)}")


def _ask_address() -> str:
    """The address of a server; it may be given without `http://`, and without the path that nearly all have."""
    address = ""
    while not address:
        address = _ask("Its address, such as http://localhost:8000/v1").rstrip("/")
    address = address if "://" in address else f"http://{address}"
    return address if urlsplit(address).path else f"{address}/v1"


def _ask_key(service: Service) -> str:
    """The key, which is not shown; the one that is set already, or none if the service needs none."""
    variable = service.variables.get("api_key")
    if variable is None:
        return ""
    needed = "api_key" in service.needed
    key = getpass.getpass(f"Key (not shown{'' if needed else '; nothing if it needs none'}): ", sys.stderr).strip()
    if needed and not key:
        raise RequestError(f"{_WORDS[service.name]} needs a key.")
    return key


def _models_at(service: Service, address: str, key: str) -> list[str]:
    """The models that a service lists; empty if it does not answer.

    Raises:
        PermissionError: It refuses the key.
    """
    import httpx

    headers: Mapping[str, str] = {"Authorization": f"Bearer {key}"} if key else {}
    base = address or os.environ.get(service.variables.get("base_url", ""), "") or service.defaults.get("base_url", "")
    url, listed = f"{(base or 'https://api.openai.com/v1').rstrip('/')}/models", "data"
    if service.name == "anthropic":
        url = f"{base or 'https://api.anthropic.com'}/v1/models"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    elif service.name == "ollama":
        url, listed = f"{os.environ.get('OLLAMA_HOST') or 'http://127.0.0.1:11434'}/api/tags", "models"
    try:
        answer = httpx.get(url, headers=headers, timeout=_SECONDS)
        if answer.status_code in (401, 403):
            raise PermissionError
        found = answer.raise_for_status().json()[listed]
        return [str(each.get("id") or each["name"]).removeprefix("models/") for each in found]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, AttributeError) as error:
        _say(f"The service at {url} does not say which models it has ({type(error).__name__}).")
        return []


def _ask(words: str) -> str:
    typer.echo(f"{words}: ", err=True, nl=False)
    line = sys.stdin.readline()
    if not line:
        raise app.typer.Abort
    return line.strip()


def _say(words: str) -> None:
    typer.echo(visible(words), err=True)
