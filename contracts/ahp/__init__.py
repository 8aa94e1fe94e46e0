"""The Agent Host Protocol: names, shapes, actions and reducers of canonical version 1.0."""
