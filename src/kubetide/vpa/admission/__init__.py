"""The admission controller: new pods get their recommendation, VPA objects are checked."""
