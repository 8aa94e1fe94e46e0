"""Processes: the keeper that parents every worker, the launcher, the port to one worker."""
