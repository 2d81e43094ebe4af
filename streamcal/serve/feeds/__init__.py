"""Feeds: where the events of a monitor come from, each with a place to go on from after a restart."""
