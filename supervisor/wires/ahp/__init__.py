"""The Agent Host Protocol: one connection, what it opens with, what it holds, what it asks for."""

from .connection import ahp_route

__all__ = ["ahp_route"]
