"""Whether SoccerTwos here is the game that Unity's policies were trained in."""
