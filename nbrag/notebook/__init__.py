"""The notebook's surface: magics, completion, progress. Loaded by ``%load_ext nbrag``."""
