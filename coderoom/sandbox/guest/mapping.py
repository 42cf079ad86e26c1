"""A map of the repository in the current folder, for a model: files with what they define, the most used ones first.

It runs behind the wall, where hostile files are harmless, and sees the files as the code does. Python is read by its
syntax, other languages by the lines that begin a function or a type.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import warnings
from typing import Dict, Iterator, List, Set, Tuple

from .editing import _files

_MOST_FILES = 20_000
_LARGEST = 256 * 1024
_MOST_READ = 16 * 1024 * 1024
_BYTES = 3  # Of a token, carefully.
_FOR_NAMES = 4  # A part of the room is for files of which only the names are shown.
_LONGEST = 120
_MOST_LINES = 15
_MOST_OWNERS = 3
_DEEPEST = 4
_PATIENCE = 20
_LIST = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", *_LIST)
_PYTHON = (".py", ".pyi")
_TEST = re.compile(
    r"(?:^|/)(?:tests?|testing|spec|__tests__)/|(?:^|/)(?:test_|conftest)[^/]*$|[._-](?:test|spec)\.\w+$"
)
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n#]*))|import[ \t]+([^\n#]+))", re.M
)
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_C_LIKE = r"^(?!\s|return|else|typedef)[\w:<>*&,\s]+?[\s*&](?P<name>\w+)\([^;{}]*\)[^;{}]*\{?$"
_TYPES = r"^\s*(?:[a-z]+\s+)*(?:class|interface|enum|record|struct|trait|object)\s+(?P<name>\w+)"
_SCRIPT = (
    r"^(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?"
    r"(?:function\*?|class|interface|type|enum)\s+(?P<name>\w+)"
    r"|^(?:export\s+)?const\s+(?P<const>\w+)\s*=\s*(?:async\s*)?(?:\([^)]*\)\s*=>|function)"
)
_KINDS = {
    ("py", "pyi"): r"^(?:async\s+def|def|class)\s+(?P<name>\w+)",
    ("js", "jsx", "mjs", "cjs", "ts", "tsx", "mts"): _SCRIPT,
    ("go",): r"^(?:func\s+(?:\([^)]*\)\s*)?|type\s+)(?P<name>\w+)",
    ("rs",): r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+|unsafe\s+|const\s+)*(?:fn|struct|enum|trait)\s+(?P<name>\w+)",
    ("rb",): r"^\s*(?:class|module|def)\s+(?:self\.)?(?P<name>\w+)",
    ("php",): r"^\s*(?:[a-z]+\s+)*(?:function|class|interface|trait)\s+(?P<name>\w+)",
    ("java", "kt", "scala", "cs", "swift"): _TYPES,
    ("c", "h", "cc", "cpp", "hpp", "cxx"): f"{_C_LIKE}|^(?:class|struct|enum)\\s+(?P<type>\\w+)",
    ("sh", "bash"): r"^(?:function\s+)?(?P<name>\w+)\s*\(\)",
}
_BY_SUFFIX = {suffix: re.compile(kind, re.M) for suffixes, kind in _KINDS.items() for suffix in suffixes}


def repository_map(tokens: int = 2_000) -> str:
    """The map of the current folder, without what git ignores where git can tell; empty if there are no files.

    Args:
        tokens: How long it may be, as a model counts, estimated.
    """
    paths = list(_listed())
    texts = _read(paths)
    order = _by_use(paths, texts)
    room = tokens * _BYTES
    for_names = room // _FOR_NAMES
    lines: List[str] = []
    shown: Set[str] = set()
    left = room - for_names
    for path in order:
        outline = _outline(path, texts[path])[:_MOST_LINES] if path in texts else []
        if not outline:
            continue
        if left < _LONGEST:
            break
        block = [_printable(path), *(f"  {line}" for line in outline)]
        while len(block) > 1 and _size(block) > left:
            block.pop()
        lines += block
        shown.add(path)
        left -= _size(block)
    return "\n".join([*lines, *_folders([path for path in order if path not in shown], left + for_names)])


def _folders(paths: List[str], room: int) -> Iterator[str]:
    """The other files, by folders, as far as there is room."""
    folders: Dict[str, List[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(_printable(name))
    left = len(paths)
    for folder, names in folders.items():
        begin = f"{_printable(folder) or '.'}/: "
        fit = len(names)
        while fit and _size([begin + " ".join(names[:fit])]) > room - _LONGEST:
            fit = fit // 2
        if not fit:
            break
        more = f" [{len(names) - fit} more]" if fit < len(names) else ""
        line = begin + " ".join(names[:fit]) + more
        yield line
        room -= _size([line])
        left -= len(names)
    if left:
        yield f"[{left} more files: list_files shows them.]"


def _size(lines: List[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _listed() -> Iterator[str]:
    """The files, without links: those that git keeps or would keep, else those that are not hidden."""
    try:
        done = subprocess.run(
            _GIT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=True,
        )
        found = (os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
    except (OSError, subprocess.SubprocessError):
        found = (path for path in _files(".") if not any(part.startswith(".") for part in path.split("/")))
    count, seen = 0, set()
    for path in found:
        if path not in seen and os.path.isfile(path) and not os.path.islink(path):
            seen.add(path)
            yield path
            count += 1
            if count == _MOST_FILES:
                return


def _read(paths: List[str]) -> Dict[str, str]:
    """The texts in languages that are known, as far as they are not too long."""
    texts: Dict[str, str] = {}
    left = _MOST_READ
    for path in paths:
        if _suffix(path) not in _BY_SUFFIX:
            continue
        try:
            size = os.path.getsize(path)
            if size > _LARGEST or size > left:
                continue
            with open(path, "rb") as file:
                texts[path] = file.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        left -= size
    return texts


def _suffix(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _names(path: str, text: str) -> Set[str]:
    found = _BY_SUFFIX[_suffix(path)].finditer(text)
    return {name for each in found for name in each.groupdict().values() if name is not None}


def _by_use(paths: List[str], texts: Dict[str, str]) -> List[str]:
    """The paths, first those that the most other files use; tests, which use the others, come after them."""
    defined = {path: _names(path, text) for path, text in texts.items()}
    score = dict.fromkeys(paths, 0.0)
    for path, count in _uses_of_python(texts, defined):
        score[path] += count
    others = {path: text for path, text in texts.items() if not path.endswith(_PYTHON)}
    owners: Dict[str, List[str]] = {}
    for path in others:
        for name in defined[path]:
            owners.setdefault(name, []).append(path)
    for path, text in others.items():
        for name in owners.keys() & set(_WORD.findall(text)):
            # A name that many files define says little about which of them is meant.
            for owner in owners[name] if len(owners[name]) <= _MOST_OWNERS else ():
                score[owner] += (owner != path) / len(owners[name])

    def place(path: str) -> Tuple[bool, float, bool, int, str]:
        is_test = _TEST.search(path) is not None
        return is_test, -score[path], not defined.get(path), path.count("/"), path

    return sorted(paths, key=place)


def _uses_of_python(texts: Dict[str, str], defined: Dict[str, Set[str]]) -> Iterator[Tuple[str, float]]:
    """The modules that other modules import, each time; for names of a package, the modules that define them there."""
    modules: Dict[str, str] = {}
    inside: Dict[Tuple[str, str], List[str]] = {}
    for path in texts:
        if path.endswith(_PYTHON):
            parts = path.rpartition(".")[0].split("/")
            is_package = parts[-1] == "__init__"
            for first in range(min(len(parts), _DEEPEST)):  # `src/package/module.py` is imported without `src`.
                modules.setdefault(".".join(parts[first : -1 if is_package else None]), path)
            for name in defined[path]:
                for end in range(len(parts)):
                    inside.setdefault(("/".join(parts[:end]), name), []).append(path)
    for path, text in texts.items():
        if not path.endswith(_PYTHON):
            continue
        used: Set[str] = set()
        for source, listed, rest, plain in _IMPORT.findall(text):
            if plain:
                used.update(modules[each] for each in re.findall(r"[\w.]+", plain) if each in modules)
                continue
            if source.startswith("."):
                above = path.split("/")[: -(len(source) - len(source.lstrip(".")))]
                source = ".".join([*above, *filter(None, [source.lstrip(".")])])
            for name in re.findall(r"\w+", listed or rest):
                found = modules.get(f"{source}.{name}") or modules.get(source)
                if found is not None and found.endswith("__init__.py"):
                    used.update(inside.get((os.path.dirname(found), name), [])[:1])
                elif found is not None:
                    used.add(found)
        for each in used - {path}:
            yield each, 1.0


def _outline(path: str, text: str) -> List[str]:
    """The lines that say what a file defines."""
    if _suffix(path) in ("py", "pyi") and hasattr(ast, "unparse"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return [_short(line) for line in _of_python(ast.parse(text).body)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    found = _BY_SUFFIX[_suffix(path)].finditer(text)
    lines = (text[each.start() : each.end()] + text[each.end() :].partition("\n")[0] for each in found)
    return [_short(line.strip().rstrip(" {:")) for line in lines]


def _of_python(body: List[ast.stmt], indent: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            if node.name.startswith("_"):
                continue
            bases = ", ".join(ast.unparse(each) for each in node.bases)
            yield f"{indent}class {node.name}{f'({bases})' if bases else ''}"
            if not indent:
                yield from _of_python(node.body, "  ")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("_") and node.name != "__init__":
                continue
            returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
            kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            yield f"{indent}{kind} {node.name}({ast.unparse(node.args)}){returns}"


def _short(line: str) -> str:
    line = _printable(line.strip("\n"))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
