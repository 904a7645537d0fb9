"""Speculative decoding: drafters, KV cache, one round, acceptors."""
