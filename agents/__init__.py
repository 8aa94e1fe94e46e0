"""The agents that ship with us; each is a plugin like any stranger's."""
