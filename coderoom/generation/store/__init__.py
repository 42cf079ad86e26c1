"""What is kept from one call to the next: solutions, and the answers of models. All of it is in one file."""
