"""The prompt of `coderoom chat`."""
