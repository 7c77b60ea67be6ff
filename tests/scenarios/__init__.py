"""Transcripts: what the agent orders, command by command, as a reader can follow it."""
