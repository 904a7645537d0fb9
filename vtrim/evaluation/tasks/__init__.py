"""Tasks to evaluate on: questions, prompt formats and scorers, by name."""
