"""pytest's side: settings, collection, items, reports, xdist and the terminal."""
