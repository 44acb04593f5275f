"""A Hugging Face Hub on this machine, for rehearsals and tests. Publishing never
imports it: it meets it over HTTP."""
