"""``edgectl emulator``."""
