"""The EAGLE-3 draft, the target wrapper and the checkpoint layouts."""
