"""From placements to a plan: what is shared out over the ranks."""
