"""A converter's score: many scripts converted, run and compared, and sorted by what came out."""
