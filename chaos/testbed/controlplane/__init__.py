"""Control planes a testbed can stand on. `local`: real servers as child processes."""
