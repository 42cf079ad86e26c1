"""Writes team files to start from, for `coderoom init`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from coderoom._util.services import MODEL_FORMS, REPLAY, has_suffix, is_model_text, service_of
from coderoom.configs.reading import find_source, shipped_sources
from coderoom.errors import RequestError


def write_starter(path: Path, team: str | None = None, model: str | None = None, *, force: bool = False) -> None:
    """Write a team file to start from, with comments.

    Args:
        path: The file.
        team: The shipped team to copy; `None`: a coder and a reviewer.
        model: The name of the default model; `None`: as it is in the team.
        force: Replace a file.

    Raises:
        RequestError: There is such a file, or no such team, or the file cannot be written.
    """
    if not has_suffix(path.name) or path.name.endswith(".json"):
        raise RequestError(f"the file {str(path)!r} must end with .yaml: it has comments")
    if team is None:
        text = resources.files("coderoom.configs").joinpath("starter.yaml").read_text("utf-8")
    elif team in shipped_sources():
        text = shipped_sources()[team].data.decode()
    else:
        find_source(team)  # Refuses an unknown name.
        raise RequestError(f"{team!r} is not a shipped team; copy that file instead")
    if model is not None:
        if (
            is_model_text(model)
            and service_of(model) is None
            and not has_suffix(model)
            and not model.startswith(REPLAY)
        ):
            raise RequestError(f"there is no model {model!r}; expected {MODEL_FORMS}, or the name of an OpenAI model")
        text = text.replace("${CODEROOM_MODEL:-gpt-4o}", f"${{CODEROOM_MODEL:-{model}}}")
    text = text.replace(" team.yaml ", f" {path} ")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RequestError(f"the file {str(path)!r} is there already; --force replaces it") from None
    except OSError as error:
        raise RequestError(f"the file {str(path)!r} cannot be written: {error.strerror}") from error
