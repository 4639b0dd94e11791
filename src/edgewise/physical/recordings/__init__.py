"""Calls with new keys by what a call with others was seen to compute: recordings, run again."""
