"""The packages that code asks for: as texts, in a requirements file, and in the inline metadata of a script."""

from __future__ import annotations

import contextlib
import difflib
import re
import shlex
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from coderoom.errors import RequestError

_NAME: Final = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_VERSIONS: Final = r"(?:~=|===?|!=|[<>]=?)\s*[\w.*+!-]+"
_REQUIREMENT: Final = re.compile(
    rf"{_NAME}\s*(?:\[[\w\s.,-]*\])?\s*(?:{_VERSIONS}(?:\s*,\s*{_VERSIONS})*|\({_VERSIONS}(?:\s*,\s*{_VERSIONS})*\))?"
    r"\s*(?:;[^\n\r\0]*)?",
    re.ASCII,
)
_OF_NPM: Final = r"(?:@[a-z0-9~_-][\w.~-]*/)?[a-z0-9_~][\w.~-]*"
_NODE_PACKAGE: Final = re.compile(
    rf"npm:(?P<names>{_OF_NPM}(?:>{_OF_NPM})*)(?:@(?P<versions>[\w.^~<>=|*+ -]+))?", re.ASCII | re.IGNORECASE
)
_NODE_INSTALLS: Final = re.compile(
    r"(?m)(?:^|(?<=&&)|(?<=;))[ \t]*[!%]?(?:npm +(?:install|i|add)|(?:yarn|pnpm) +add)\b([^\n;&|#<>]*)"
)
_NODE_OPTIONS: Final = re.compile(
    r"--(?:cache|include|loglevel|omit|prefix|registry|tag|workspace) +\S+|(?<=\s)-[Cw] +\S+"
)
_BEFORE_CODE: Final = re.compile(r"(?:[ \t]*(?://.*)?\n)*")
_NO_NODE_MODULE: Final = re.compile(rf"Cannot find (?:module|package) '({_OF_NPM})(?:/[^']*)?'", re.IGNORECASE)
_BLOCK: Final = re.compile(r"(?m)^# /// script\s*$\n(?P<lines>(?:^#(?: .*)?$\n)+?)^# ///\s*$")
_INSTALLS: Final = re.compile(
    r"(?m)^[ \t]*[!%]?(?:sudo +)?(?:(?:uv|python[\d.]* +-m) +)?(?:pip[\d.]*|conda) +install +"
    r"((?:'[^'\n]*'|\"[^\"\n]*\"|\d(?!>)|[^\n;&|#<>'\"\d])*)"  # Up to what is the shell's.
)
_CALLS: Final = re.compile(
    r"""["'\s]pip[\d.]*(?:["'], *["']| +)install\b["']?((?:, *["'][^"'\n]*["']| +[\w.=<>~\[\]-]+)+)"""
)
_QUOTES: Final = "'\""
_FILES: Final = (".txt", ".lock")
_LOOKED_AT, _MOST, _LONGEST = 20_000, 20, 200  # Of what code has written: characters, packages, and characters of one.
ON_REQUEST: Final = "on-request"
"""In `packages`: code may install more while it runs."""
ALLOW_BUILDS: Final = "allow-builds"
"""In `packages`: those without a wheel are built, behind a wall."""
WORDS: Final = (ON_REQUEST, ALLOW_BUILDS)
"""What may stand in `packages` and is no package."""
# Of packages that code often asks for, to find what was meant.
_OFTEN: Final = (
    "aiohttp altair beautifulsoup4 bokeh boto3 click cryptography django duckdb fastapi flask geopandas gensim httpx "
    "imageio jinja2 joblib jsonschema keras lightgbm lxml matplotlib mpmath networkx nltk numba numpy openai "
    "opencv-python-headless openpyxl pandas pdfplumber pillow plotly polars pyarrow pydantic pymongo pymupdf pypdf "
    "pytest python-dateutil python-docx python-dotenv pyyaml redis regex reportlab requests rich scikit-image "
    "scikit-learn scipy seaborn shapely spacy sqlalchemy statsmodels sympy tabulate tensorflow tiktoken torch tqdm "
    "transformers typer xgboost xlsxwriter"
)


def check_requirement(text: object) -> str:
    """A package with the versions that are allowed, such as `polars>=1`, without spaces around it.

    Raises:
        RequestError: It is something else, for instance an address or a path, from which code would run; also a word
            or the name of a file, which mean something else where packages are listed.
    """
    if isinstance(text, str) and _REQUIREMENT.fullmatch(text.strip()):
        plain = text.strip()
        if plain not in WORDS and not plain.endswith(_FILES):
            return plain
    raise RequestError(
        f"packages: {str(text)!r:.200} is not a package with versions, such as 'polars' or 'polars>=1,<2'. Addresses, "
        "paths and options are not taken."
    )


def check_packages(text: object) -> str:
    """What `packages` has: a package, also one of npm, or the path of a requirements file.

    Raises:
        RequestError: It is something else.
    """
    if isinstance(text, str) and (text.endswith(_FILES) or text in WORDS):
        return text
    return _check_package(text)


def _check_package(text: object) -> str:
    if not isinstance(text, str) or not text.strip().startswith("npm:"):
        return check_requirement(text)
    node_package(text)
    return text.strip()


def node_package(text: str) -> tuple[list[str], str]:
    """The name of a package of npm, after those that it lies inside of, and its versions.

    Raises:
        RequestError: It is something else, for instance an address or a path.
    """
    found = _NODE_PACKAGE.fullmatch(text.strip())
    if found is None:
        raise RequestError(
            f"packages: {text!r:.200} is not a package of npm with versions, such as 'npm:lodash' or 'npm:lodash@^4'. "
            "Addresses, paths and options are not taken."
        )
    return found["names"].split(">"), (found["versions"] or "latest").strip()


def requirements_of(packages: Iterable[str]) -> list[str]:
    """The packages that are named, and those of the files, without those of npm.

    Raises:
        RequestError: A file cannot be read, or has something else than packages.
    """
    return [each for each in _named(packages) if not each.startswith("npm:")]


def node_packages_of(packages: Iterable[str]) -> list[str]:
    """The packages of npm that are named, and those of the files.

    Raises:
        RequestError: As `requirements_of`.
    """
    return [each for each in _named(packages) if each.startswith("npm:")]


def has_node_packages(packages: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether all that is wanted are packages of npm, in whatever version, that `packages` names."""
    wanted = list(wanted)
    return all(each.startswith("npm:") for each in wanted) and set(wanted) <= {
        f"npm:{'>'.join(node_package(each)[0])}" for each in node_packages_of(packages)
    }


def _named(packages: Iterable[str]) -> list[str]:
    found = []
    for each in packages:
        if each in WORDS:
            continue
        found += _read(Path(each)) if each.endswith(_FILES) else [_check_package(each)]
    return found


def _read(file: Path) -> list[str]:
    """The packages of a requirements file, which may be the lock file of another run.

    Raises:
        RequestError: It cannot be read, or has something else than packages.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} cannot be read: {error}") from None
    # Digests are not needed: exact versions are resolved to digests once more.
    lines = re.sub(r"\\\n|\s--hash=\S+|(?:^|\s)#.*", " ", text, flags=re.MULTILINE).splitlines()
    try:
        return [_check_package(line) for line in lines if line.strip()]
    except RequestError as error:
        raise RequestError(f"{file}: {error}") from None


def check_allowed(packages: Iterable[str], allowed: Collection[str]) -> list[str]:
    """The packages that code asks for, if it may have them.

    Args:
        packages: The packages, with versions.
        allowed: The names that it may have, also as patterns such as `types-*` or `npm:@types/*`;
            empty: all.

    Raises:
        RequestError: One is no package, or not allowed.
    """
    found = [_check_package(each) for each in packages]
    patterns = [_plain(each) for each in allowed]
    for each in found:
        names = (
            [f"npm:{name}" for name in node_package(each)[0]]
            if each.startswith("npm:")
            else re.findall(_NAME, each)[:1]
        )
        if patterns and not all(any(fnmatchcase(_plain(name), pattern) for pattern in patterns) for name in names):
            raise RequestError(f"The package {each!r} is not among those that code may install: {', '.join(allowed)}.")
    return found


def _plain(name: str) -> str:
    """A name as the index compares it; that of npm knows no other spelling."""
    if name.startswith("npm:"):
        return name
    return re.sub(r"[-_.]+", "-", name).lower()


def packages_in(code: str) -> list[str]:
    """The packages in the inline metadata of a script (`# /// script`), as PEP 723 has it.

    Raises:
        RequestError: The metadata is not valid.
    """
    blocks = list(_BLOCK.finditer(f"{code}\n"))
    if not blocks:
        return []
    if len(blocks) > 1:
        raise RequestError("The script has several blocks of metadata (# /// script); it may have one.")
    import tomllib

    text = "".join(line[2:] if line.startswith("# ") else line[1:] for line in blocks[0]["lines"].splitlines(True))
    try:
        found = tomllib.loads(text).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"The script's metadata (# /// script) is not valid TOML: {error}") from None
    if not isinstance(found, list):
        raise RequestError("The script's metadata (# /// script): dependencies is not a list.")
    return [check_requirement(each) for each in found]


def near_names(name: str) -> list[str]:
    """The names of often used packages that are similar to a name, the nearest first."""
    return difflib.get_close_matches(name.lower(), _OFTEN.split(), 3, 0.7)


def installs_in(code: str) -> list[str]:
    """The packages that code installs, in a shell or by a command of notebooks (`!pip install`, `%pip install`)."""
    return [each for each in _installed(code) if not each.endswith(_FILES)] + _installed_by_npm(code)


def _installed(code: str) -> list[str]:
    found = []
    for options in _INSTALLS.findall(code):
        for word in options.split():
            with contextlib.suppress(RequestError):
                found.append(check_packages(word.strip(_QUOTES)))
    return [each for each in found if each not in WORDS]


def _installed_by_npm(code: str) -> list[str]:
    found = []
    for options in _NODE_INSTALLS.findall(code):
        for word in _NODE_OPTIONS.sub("", options).split():
            with contextlib.suppress(RequestError):
                found.append(_check_package(f"npm:{word.strip(_QUOTES)}"))
    return found


def install_commands(code: str) -> list[str]:
    """The commands of a shell's code that install packages."""
    found = [*_INSTALLS.finditer(code), *_NODE_INSTALLS.finditer(code)]
    return [each[0].strip() for each in sorted(found, key=lambda each: each.start())]


def leading_installs(code: str) -> list[str]:
    """The commands that install packages of npm at the begin of a cell in JavaScript, which is no code there."""
    found: list[str] = []
    at = 0
    while (command := _NODE_INSTALLS.match(code, _BEFORE_CODE.match(code, at).end())) is not None:  # type: ignore[union-attr]
        found.append(command[0].strip())
        at = command.end()
    return found


def advice_on_installing(code: str, output: str, on_request: bool = False) -> str:
    """What installs the packages that failed code has asked for, or Node has not found; empty if there are none.

    With `on_request`, commands that install some have done so, or said why not.
    """
    code, output = code[:_LOOKED_AT], output[-_LOOKED_AT:]
    found = _called(code) if on_request else _installed(code) + _called(code) + _installed_by_npm(code)
    found = [each for each in dict.fromkeys(found) if len(each) <= _LONGEST][:_MOST]
    named = " ".join(f"--package {shlex.quote(each)}" for each in found)
    if found:
        return f"Code installs no packages here: packages={found!r} ({named}) does, before it runs."
    missing = _NO_NODE_MODULE.search(output)
    if missing is None or len(missing[1]) > _LONGEST:
        return ""
    return f"packages=['npm:{missing[1]}'] (--package npm:{missing[1]}) installs it."


def _called(code: str) -> list[str]:
    """The packages for which a program calls pip, as text or as a list of words."""
    found = []
    for options in _CALLS.findall(code):
        for word in re.split(r"[\s,]+", options):
            with contextlib.suppress(RequestError):
                found.append(check_requirement(word.strip(_QUOTES)))
    return found
