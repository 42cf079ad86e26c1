"""`python -m coderoom` runs the command line."""

import sys
from pathlib import Path

from coderoom.cli import main

if __name__ == "__main__":
    # `-m` puts the current folder first, where a file could replace a package that team files name.
    if sys.path and Path(sys.path[0]).resolve() == Path.cwd().resolve():
        del sys.path[0]
    main()
