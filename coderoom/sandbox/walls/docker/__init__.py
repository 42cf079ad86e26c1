"""The wall that is a container of a Docker engine on this machine."""
