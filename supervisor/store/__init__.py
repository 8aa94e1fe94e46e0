"""Keeping: what the host writes down, behind one interface."""
