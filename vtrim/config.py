"""Recipes: one YAML is one reproducible run."""
