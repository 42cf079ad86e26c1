"""The command `coderoom`, which is also `python -m coderoom`."""

import sys
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit; Ctrl-C ends it even while its modules are imported."""
    try:
        from coderoom import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    # `-m` puts the current folder first, where a file could replace a package that team files name.
    if sys.path and Path(sys.path[0]).resolve() == Path.cwd().resolve():
        del sys.path[0]
    main()
