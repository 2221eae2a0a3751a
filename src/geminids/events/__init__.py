"""Our event model, how other tongues become it, and how it folds."""
