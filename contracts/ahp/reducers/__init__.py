"""Pure reducers over JSON state, one module a channel."""
