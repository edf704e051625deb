"""Saving and restoring: from a state to spans of bytes and back. Users import `pawl.checkpoint`,
`pawl.engine` and `pawl.loading`."""
