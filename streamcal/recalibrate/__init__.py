"""Recalibrators: maps from predicted probabilities to better ones, one file per idea."""

from streamcal.recalibrate.recalibrator import RECALIBRATORS, Recalibrator

__all__ = ["RECALIBRATORS", "Recalibrator"]
