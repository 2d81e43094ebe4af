"""Pairs predictions with their labels."""
