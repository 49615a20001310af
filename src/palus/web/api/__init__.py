"""The arena's JSON: what each page shows, as functions of the store, and the routes that serve it."""
