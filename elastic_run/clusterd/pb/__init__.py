"""Generated messages, one module for each .proto file."""
