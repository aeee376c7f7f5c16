"""Fire drills: processes of ours that are killed, starved, cut off or lied to."""
