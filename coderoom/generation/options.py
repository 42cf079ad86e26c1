"""The options of the generator: those of `AICodeGenerator`, of `CodeGeneratorAgent` and of `coderoom solve`.

`--help`, the table in `docs/generation.md` and the schema of team files are made of the fields and their texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from coderoom.errors import RequestError
from coderoom.generation.languages.named import LANGUAGES, LanguageName
from coderoom.sandbox.config import WallName
from coderoom.sandbox.registry import WALLS

Severity = Literal["low", "medium", "high", "none"]


def _module(name: str) -> str:
    if not name or any(each.isspace() or each in ",;" for each in name):
        raise ValueError(f"{name!r:.100} is not a module name")
    return name


class GeneratorOptions(BaseModel):
    """The options of the generator, as plain data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: LanguageName = Field(
        default="python", description=f"The language: {', '.join(LANGUAGES.own)}, or one of another package."
    )
    wall: WallName = Field(default="auto", description="The wall (isolation backend) around the code.")
    max_attempts: int = Field(default=6, ge=1, description="Attempts for each function.")
    branches: int = Field(
        default=1,
        ge=1,
        description="Repairs that are asked for at the same time after a failure; each is one of the attempts.",
    )
    max_test_changes: int = Field(default=2, ge=0, description="Changes of tests for each function.")
    max_tokens: int | None = Field(default=None, ge=1, description="Token budget; without it, unlimited.")
    max_answer_tokens: int | None = Field(
        default=None, ge=1, description="Tokens of one reply; without it, the model client's own limit."
    )
    request_timeout: float | None = Field(
        default=None,
        ge=0.01,
        description="Seconds of a request, which is then repeated; without it, the model client's own limit.",
    )
    max_seconds: float | None = Field(
        default=1800.0, ge=0, description="Time budget in seconds; a running request is cut off."
    )
    concurrency: int = Field(default=4, ge=1, description="Concurrent requests of one solution.")
    requests_per_minute: float | None = Field(
        default=None, ge=0.001, description="Requests that start in a minute; without it, unlimited."
    )
    retries: int = Field(default=4, ge=0, description="Retries after a connection error.")
    test_timeout: float = Field(default=5.0, ge=0.01, description="Timeout of each test in seconds.")
    allowed_imports: Annotated[list[Annotated[str, AfterValidator(_module)]], AfterValidator(sorted)] | None = Field(
        default=None, description="Let the code import only these modules; without it, all."
    )
    block_severity: Annotated[Severity | None, BeforeValidator(lambda level: level or "none")] = Field(
        default="high",
        description="Do not run code in which the scanner finds this severity or more: low, medium, high or none.",
    )
    accept_changed_tests: bool = Field(
        default=False, description="Count functions as passed if their tests were changed during the repair."
    )
    strict: bool = Field(
        default=False, description="Fail tests that pass alone, but not after the others in one process."
    )
    strength: bool = Field(
        default=True,
        description=(
            "Measure how many mutants of the code its tests kill, and ask the model once for more tests if it is "
            "too few."
        ),
    )
    cache: bool = Field(default=True, description="Reuse solutions that passed, and resume interrupted work.")
    cache_dir: Annotated[str | None, BeforeValidator(lambda path: os.fspath(path) if path else None)] = Field(
        default=None,
        description=(
            "The folder with the database of the cache, journal.sqlite3; without it, the cache is in the journal."
        ),
    )
    embeddings: str | None = Field(
        default=None,
        description="Reuse solutions of similar instructions, too, by this embedding model with OpenAI's API.",
    )
    similarity: float = Field(
        default=0.95, gt=0, le=1, description="The least cosine of the embeddings of similar instructions."
    )

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> Self:
        """Options by their names.

        Raises:
            RequestError: One of them is wrong.
        """
        if unknown := options.keys() - cls.model_fields:
            raise TypeError(f"The generator has no option {unknown.pop()!r}.")
        try:
            return cls(**options)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            name, value, least = str(wrong["loc"][0]), wrong["input"], wrong.get("ctx", {}).get("ge")
            if plugins := {"language": LANGUAGES, "wall": WALLS}.get(name):
                raise RequestError(plugins.unknown(value)) from None
            if wrong["type"] == "value_error":
                raise RequestError(f"{name}: {wrong['ctx']['error']}.") from None
            words = (
                f": {wrong['msg'][:1].lower()}{wrong['msg'][1:]}" if least is None else f" must be at least {least:g}"
            )
            raise RequestError(f"{name}={value!r:.100}{words}.") from None


class GeneratorArguments(TypedDict, total=False):
    """The types of `GeneratorOptions` as keyword arguments, for type checkers; see there."""

    wall: str
    max_attempts: int
    branches: int
    max_test_changes: int
    max_tokens: int | None
    max_answer_tokens: int | None
    request_timeout: float | None
    max_seconds: float | None
    concurrency: int
    requests_per_minute: float | None
    retries: int
    test_timeout: float
    allowed_imports: Sequence[str] | None
    block_severity: Severity | None
    accept_changed_tests: bool
    strict: bool
    strength: bool
    cache_dir: str | Path | None
    similarity: float
