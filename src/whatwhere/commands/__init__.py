"""What every command is built with: options from signatures, inputs, outputs."""
