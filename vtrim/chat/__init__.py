"""Any chat file to conversations, token ids and reply masks."""
