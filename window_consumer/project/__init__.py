"""Projects: `init` creates one from the files beside it, and nothing of it runs in a worker."""
