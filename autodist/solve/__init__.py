"""From placements to a plan: what must be replicated, and the communications that make it so."""
