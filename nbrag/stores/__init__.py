"""Where documents, chunks and vectors are kept: DuckDB files, memory; filters and indices."""
