"""Wires: translation between a connection and the host, no state beyond the connection."""
