"""The pages of the viewer: the list of runs, a run, a batch, and the server that shows them in a browser."""
