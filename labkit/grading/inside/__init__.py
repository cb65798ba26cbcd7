"""What runs inside the sandbox. Imports neither labkit nor a key, and is never imported by what grades."""
