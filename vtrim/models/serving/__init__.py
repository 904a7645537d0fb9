"""What engines make of a draft folder, by their own code (docs: the check of ``vtrim export``)."""
