"""A Hugging Face Hub on this machine, for rehearsals and tests. Nothing imports it."""
