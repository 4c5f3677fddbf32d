"""What is known of the engines that serve models, as data and pure functions over it."""
