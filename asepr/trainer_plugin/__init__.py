"""Everything that runs beside the model."""
