"""Projects: `init` creates one from the files in this folder; none of it runs in a worker."""
