"""Models: embedders, where their files come from, and how they run."""
