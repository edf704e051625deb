"""What `pawl report` reads and draws. Users import `pawl.report`."""
