"""The engine `cpython`: cells run in forks of a warm interpreter behind a wall."""
