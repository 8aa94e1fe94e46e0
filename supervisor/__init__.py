"""The host: connections, wires, state, sequence numbers, processes and the command line."""
