"""Applies edits to a file's text so that everything else stays as it is, byte for byte. Only `edits` uses it."""
