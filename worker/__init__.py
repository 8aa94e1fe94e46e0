"""One conversation in a process of its own: loads an agent, runs it, speaks frames over a pipe."""
