"""Training scripts put together at random from the idioms that people use, converted and verified."""
