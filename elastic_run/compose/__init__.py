"""The composition root, and the only package that knows every other: builds, runs and tears down."""
