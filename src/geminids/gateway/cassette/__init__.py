"""Record requests and their answers in a file (the cassette), and replay the answers later."""
