"""The cache of solutions and the journal of models' answers, in one SQLite file."""
