"""What `scripts/bench` measures, and the raw limits that it measures beside it."""
