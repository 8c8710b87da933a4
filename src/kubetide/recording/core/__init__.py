"""What a recording may hold and how its rows are laid out, decided on values alone."""
