"""Summary trees over the passages of a collection: their shape, and the summaries."""
