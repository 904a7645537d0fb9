"""Measured speed and acceptance, and the report."""
