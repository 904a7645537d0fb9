"""Serving engines as judges: the same prompts through vLLM or a server, in the same rows."""
