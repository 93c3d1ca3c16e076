"""The generator: finds identities by enumerating graphs, generalises them to rules, and has them proved."""
