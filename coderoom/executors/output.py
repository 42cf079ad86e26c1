"""Output for the author of the code: bounded text, remarks, and files for blocks and whole outputs."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits

_WORKSPACE = "/workspace/"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def keep_named_file(root: Path, name: str, code: str) -> str:
    """Save a block to the file that it names; return why that is not possible, or an empty text."""
    try:
        write_inside(root, name_inside(name), code.encode("utf-8", "replace"))
    except RequestError as error:
        return str(error)
    except OSError as error:
        return (
            f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
            "Name a plain file whose folders are not links."
        )
    return ""


def name_inside(name: str) -> str:
    """A path in the workspace that somebody gave, without `..` and the workspace's own path.

    Raises:
        RequestError: It is not in the workspace.
    """
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    if inside.startswith("/") or inside.split("/")[0] in (".", "..") or "\0" in inside:
        raise RequestError(f"Filename is not in the workspace: {name!r}. Name a file inside the work directory.")
    return inside


def read_inside(root: Path, name: str, most: int) -> bytes:
    """Read a plain file whose folders are not links, as `write_inside` writes it.

    Raises:
        OSError: It cannot be read.
        RequestError: It has more bytes than `most`, or is not a plain file.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _FOLDER)))
        for part in folders:
            folder = stack.enter_context(_opened(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)))
        # A pipe without a writer would wait.
        found = stack.enter_context(_opened(os.open(last, _OLD, dir_fd=folder)))
        facts = os.fstat(found)
        if not stat.S_ISREG(facts.st_mode):
            raise RequestError(f"{name!r} is not a plain file.")
        if facts.st_size > most:
            raise RequestError(f"The file {name!r} has {facts.st_size:,} bytes, and {most:,} can be read.")
        with open(os.dup(found), "rb") as file:  # noqa: PTH123 (a descriptor)
            return file.read(most)


def files_inside(root: Path) -> Iterator[tuple[str, int]]:
    """The plain files of a folder by their paths in it, without those behind links, and their sizes."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode):
                    yield path.relative_to(root).as_posix(), facts.st_size


def write_inside(root: Path, name: str, data: bytes) -> Path:
    """Write a file atomically, and create its folders.

    Code may create links at any moment, also between a check and the write. So each folder is opened relative to the
    one above it, and a link is an `OSError`. If root works in another user's folder, the files belong to that user.
    The path of the root is trusted; the name has `/` and no `..`.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _FOLDER)))
        facts = os.fstat(folder)
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                if owner is not None:
                    os.chown(part, *owner, dir_fd=folder, follow_symlinks=False)
            folder = stack.enter_context(_opened(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)))
        fresh = f".{uuid.uuid4().hex}.new"
        try:
            with open(os.open(fresh, _NEW, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(data)
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
            os.replace(fresh, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise
    return root.joinpath(*folders, last)


@contextlib.contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


_MOST_OUTPUTS = 20
_OUTPUTS = ".coderoom"
_LEAST = 200


def bound_output(
    text: str, limit: int, *, whole: Path | None = None, total: int | None = None, partly: bool = False
) -> str:
    """Shorten a text by removing its middle.

    Args:
        text: The text.
        limit: The most characters, including the notice of what was left out, unless a long path makes the notice
            longer than half of the limit.
        whole: The file with the whole text, which the notice names.
        total: The number of characters of the whole text, if `text` is only a part.
        partly: Whether the file has only the beginning and the end too, but more of them.

    Returns:
        The text if it fits, else its beginning and its end with a notice between them.

    Raises:
        ValueError: The limit is below 200.
    """
    if limit < _LEAST:
        raise ValueError(f"limit={limit!r} is too small: at least {_LEAST} characters are needed")
    if len(text) <= limit:
        return text
    full = max(len(text), total or 0)
    # The notice for the whole text is at least as long as the final one.
    room = max(limit - len(_notice(full, full, whole, partly)) - 1, limit // 2)
    head = _cut_head(text, room * 6 // 10)
    tail = _cut_tail(text, room - room * 6 // 10)
    gap = "" if head.endswith("\n") else "\n"
    return head + gap + _notice(full - len(head) - len(tail), full, whole, partly) + tail


def save_output(text: str, folder: Path) -> Path:
    """Save a whole output to a file in the folder's `.coderoom`, which keeps the newest of them.

    Args:
        text: The output. Characters that UTF-8 cannot encode become `?`.
        folder: Usually the work directory, so that code can read the file. It is created if it does not exist.

    Returns:
        The file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The code may have created links there.
    data = text.encode("utf-8", "replace")
    # Named after its content, so that the notice of equal outputs is equal too.
    name = f"{_OUTPUTS}/output-{sha256(data).hexdigest()[:12]}.txt"
    path = write_inside(folder, name, data)
    with contextlib.suppress(OSError), _opened(os.open(path.parent, _FOLDER | os.O_NOFOLLOW)) as outputs:
        names = [name for name in os.listdir(outputs) if name.startswith("output-")]  # noqa: PTH208 (a descriptor)
        names.sort(key=lambda name: os.stat(name, dir_fd=outputs, follow_symlinks=False).st_mtime_ns)
        for name in names[:-_MOST_OUTPUTS]:
            os.unlink(name, dir_fd=outputs)
    return path


def bound_and_save(result: ExecutionResult, limit: int, folder: Path, *, is_shared: bool = True) -> tuple[str, Path]:
    """Shorten an output above the limit, and save the whole; return the short one, which names the file, and the file.

    `is_shared` says that code works in this folder. Behind a wall it sees the file at another path.
    """
    path = save_output(result.output, folder)
    total = max(len(result.output), result.output_size) if result.truncated else len(result.output)
    named = path.relative_to(folder) if is_shared else path
    return bound_output(result.output, limit, whole=named, total=total, partly=result.truncated), path


def _notice(left_out: int, total: int, whole: Path | None, partly: bool) -> str:
    what = "more of its beginning and its end" if partly else "the whole output"
    where = f"; {what} is in {whole}" if whole is not None else ""
    return f"[... {left_out:,} of {total:,} characters left out{where} ...]\n"


def _cut_head(text: str, size: int) -> str:
    end = text.rfind("\n", size - size // 4, size)
    return text[: end + 1] if end >= 0 else text[:size]


def _cut_tail(text: str, size: int) -> str:
    begin = len(text) - size
    start = text.find("\n", begin, begin + size // 4)
    return text[start + 1 :] if start >= 0 else text[begin:]


STATE_LOST = "The session was restarted: earlier variables are gone."
_STATE_KEPT = "Variables that were set before are still there."
_NOT_IN_OUTPUT = ("Limit", "Timeout", "Cancelled", "Signal")
_MIB = 1 << 20


def with_line(output: str, text: str) -> str:
    """Return the output with a line of text added."""
    gap = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{gap}{text}\n"


def remark_on(result: ExecutionResult, limits: Limits, in_session: bool) -> str:
    """Return a remark on why code was ended or which limit it reached; empty if the output says so already."""
    error, message, is_printed = result.error, "", False
    # An error with a traceback was raised by the code.
    if error is not None and not error.traceback and error.type in _NOT_IN_OUTPUT:
        if in_session:
            return error.message
        return error.message.partition(". ")[0].rstrip(".") + "."  # The rest is about the session.
    if result.outcome is Outcome.MEMORY:
        message = f"The code wanted more memory than the {limits.memory_bytes // _MIB:,} MiB that it may have."
        is_printed = error is not None and message in error.message
        if is_printed:
            message = ""
    elif result.outcome is Outcome.ERROR:
        message = _limit(result, limits)
    if in_session and result.state_lost:
        return f"{message} {STATE_LOST}".strip()
    return f"{message} {_STATE_KEPT}".strip() if in_session and (message or is_printed) else message


def _limit(result: ExecutionResult, limits: Limits) -> str:
    match result.limit:
        case "open_files":
            return f"The code may have {limits.open_files} files open at a time."
        case "processes":
            return f"The code may have {limits.processes} processes and threads at a time."
        case "file_size":
            return f"The code may write files of up to {limits.file_bytes:,} bytes."
        case "disk":
            return f"The disk is full, or /tmp has the {limits.disk_bytes // _MIB:,} MiB that it may have."
        case _:
            return ""
