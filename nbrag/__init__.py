"""nbrag: a retrieval-augmented-generation workbench for notebooks."""
