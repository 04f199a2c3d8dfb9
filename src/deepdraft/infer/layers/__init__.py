"""The parts a decoder layer is made of: weights with a call each, given all they need as arguments."""
