"""The analytical cost of a draft (numpy only)."""
