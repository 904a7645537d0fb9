"""From samples to a trained draft: features, TTT loss, DeepSpeed loop, resume."""
