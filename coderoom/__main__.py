"""`python -m coderoom` is the command line."""

from coderoom.cli import main

main()
