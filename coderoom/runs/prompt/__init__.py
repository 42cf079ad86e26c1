"""The prompt of `coderoom chat`: reads tasks for a team from a person, one after the other."""
