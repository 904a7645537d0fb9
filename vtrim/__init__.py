"""vtrim: trim the draft vocabulary of speculative decoding, from token counts to measured speed."""

__version__ = "0.5.0"
