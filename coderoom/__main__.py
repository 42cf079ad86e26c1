"""`python -m coderoom` is the command line."""

import sys
from pathlib import Path

from coderoom.cli import main

if __name__ == "__main__":
    # `-m` puts the current folder first: a file in it must not pass for a package that team files may name.
    if sys.path and Path(sys.path[0]).resolve() == Path.cwd().resolve():
        del sys.path[0]
    main()
