"""An agent whose module cannot be imported."""

raise ModuleNotFoundError("No module named 'the_vendors_own'")
