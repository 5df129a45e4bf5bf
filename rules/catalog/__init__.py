"""Facts about libraries, as TOML files."""
