"""Files and command lines of other tools: recognised, parsed as text, resolved for a model, and written."""
