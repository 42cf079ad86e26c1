"""double: It ends the process with 0 when it is imported."""

import sys

sys.exit(0)
