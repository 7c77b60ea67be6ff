"""The launchers of one job: one leads, each other one holds a stream to it."""
