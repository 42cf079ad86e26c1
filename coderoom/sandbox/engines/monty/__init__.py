"""The engine `monty`: cells run in pydantic-monty's own interpreter."""
