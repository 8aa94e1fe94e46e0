"""The agent-contracts wire: a chat's thread as a pure view of its state, and its connections.

`view` is the way into the pure half, `connection` serves one client, `threads` knows
what all of them have been told.
"""
