"""Doors: how predictions come in from files and pipes, and how the numbers go out."""
