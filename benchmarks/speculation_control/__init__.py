"""`--speculation auto` beside always and never on servers of known truth; ../README.md says how to run it."""
