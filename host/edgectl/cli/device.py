"""``edgectl device``."""
