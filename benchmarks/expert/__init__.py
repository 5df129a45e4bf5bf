"""What converted scripts communicate and read, beside the same scripts distributed by hand."""
