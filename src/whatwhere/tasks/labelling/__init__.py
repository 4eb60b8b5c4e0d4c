"""Naming pictures: a session that suggests the next one, and its tables."""
