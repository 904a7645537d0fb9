"""Token counts, the coverage curve, utility and the search for k (never torch)."""
