"""What interprets a cell: `cpython` (forks of a warm interpreter) and `monty`."""
