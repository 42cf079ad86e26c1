"""The tests of CodeRoom."""

import os

# Runs of tests do not belong in the journal of whoever tests.
os.environ.setdefault("CODEROOM_JOURNAL", "off")
