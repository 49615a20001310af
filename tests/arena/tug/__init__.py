"""A third game of an arena, all of it in one folder: tug of war, in which every team has a puller and a shouter."""
