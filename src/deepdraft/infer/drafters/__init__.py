"""What proposes tokens to the target: block diffusion (`dflash`) and prompt lookup (`ngram`)."""
